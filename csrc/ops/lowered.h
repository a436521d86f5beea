// Ops that no program has before it is lowered (ops/lowered.def).
#pragma once

#include "ir/graph.h"

namespace poptorch::ops {

bool is_lowered(ir::OpName op_name);

// Whether a module has such an op.
bool has_lowered(const ir::Module& module);

}  // namespace poptorch::ops
