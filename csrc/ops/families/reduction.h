// What the rows and the kernels of reductions share.
#pragma once

#include <vector>

#include "ops/op_def.h"

namespace poptorch::ops {

// For each dimension of `x`, whether the attribute `dim` names it; no names mean all.
std::vector<bool> reduced_dims(const InferInput& in, const ir::Type& x);

// The one dimension of attribute `dim`; absent or `none`: -1.
int64_t single_dim(const InferInput& in, const ir::Type& x);

}  // namespace poptorch::ops
