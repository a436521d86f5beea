// The parts of a training step.
#pragma once

#include "ir/graph.h"

namespace poptorch::place {

enum class Part { forward, backward, update };
const char* name_of(Part part);

// The part that an op belongs to, by `backward` and `update` and by the op's name.
Part part_of(const ir::Op& op);

}  // namespace poptorch::place
