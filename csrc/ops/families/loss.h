// What the rows and the kernels of losses share.
#pragma once

#include "ops/op_def.h"

namespace poptorch::ops {

// The attribute `reduction`; its numbers are those of ATen.
enum class Reduction : int64_t { none, mean, sum };

// A user error unless it is one of them.
Reduction reduction_of(const InferInput& in);

}  // namespace poptorch::ops
