// Computes one op on host memory, now: for constant folding and for tests of rows and kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace poptorch::ops {

using Bytes = std::vector<std::byte>;

// Bytes of each result. `inputs` holds one pointer for each operand (nullptr: absent), to memory of
// the operand's type, strides included.
// `inplace[i]`, where given and not -1, is the operand whose memory result i takes: the kernel sees
// equal pointers, to a copy.
std::vector<Bytes> evaluate(const ir::Op& op, const std::vector<const void*>& inputs, int threads,
                            const std::vector<int>& inplace = {});

}  // namespace poptorch::ops
