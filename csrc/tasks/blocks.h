// Which ops of a micro-batch belong to which block of the model, before they are placed.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace poptorch::tasks {

struct Block {
  std::string name;  // empty: ops before the first block
  std::vector<const ir::Op*> forward, backward;
};

// Of a module before the step place, in which ops name their blocks: in the order in which these
// begin. An op that names none belongs to the block of the op before it, or, in the backward pass,
// to that of an operand. The update is left out.
std::vector<Block> blocks_of(const ir::Module& module);

}  // namespace poptorch::tasks
