// Convolutions of inference: pack_convolution lays weights out for the algorithm that
// packed_convolution will choose (algorithms.h).
#pragma once

#include <string>

#include "kernels/conv/problem.h"
#include "ops/kernel.h"
#include "support/loading/shown.h"

namespace poptorch::kernels {

// What comes after a packed_convolution, by oneDNN's names: none, relu, swish or hardswish.
POPTORCH_SHOWN const char* onednn_activation(const ops::Call& call);

// The convolution, and then `activation`, a name of simd/unary.def, in place.
POPTORCH_SHOWN ops::Prepared with_activation(const ops::Call& call, ops::Prepared convolution,
                                             const std::string& activation);

// Of one channel, or of a program that was compiled elsewhere and reads the module's weights.
POPTORCH_SHOWN bool is_left_as_it_is(const ops::Call& call);

}  // namespace poptorch::kernels
