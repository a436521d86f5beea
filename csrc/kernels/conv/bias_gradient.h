// The gradient of a convolution's bias: sums over images and pixels.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// Writes result 2 of a call of `convolution_backward`, db, from dy, which has channels as dimension
// 1, and any strides. Of 16-bit floats it is summed in f32 and rounded once. The order of a sum
// does not depend on the number of threads.
ops::Prepared bias_gradient(const ops::Call& call);

}  // namespace poptorch::kernels
