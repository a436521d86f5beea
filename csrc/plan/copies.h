// Copies that a module needs before its values can be given memory.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace poptorch::plan {

// A copy to be put in: of operand `index` of `user`, before it; or, where `user` is null, of output
// `index` of the graph, at its end.
struct NeededCopy {
  ir::Graph* graph = nullptr;
  ir::Op* user = nullptr;
  size_t index = 0;
};

// Puts `contiguous` ops in and writes `order` again.
void insert_copies(const ir::Module& module, const std::vector<NeededCopy>& copies);

// A `state` op reads as of graph entry. Where a loop of the same graph assigns that state and the
// value is used after it, the value becomes a copy made before the loop.
void copy_shadowed_states(ir::Module& module);

}  // namespace poptorch::plan
