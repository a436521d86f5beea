// The gradient of a convolution's weight as products of matrices, strip by strip:
//
//   dw[o, (kh, kw, c)] = sum over pixels of dy[o, pixel] * im2col(x)[pixel, (kh, kw, c)]
//
// A row of im2col is what the kernel sees of the input at one pixel of the output. Those of a strip
// of a few hundred pixels are laid out in scratch, channels last, so that they are copied in runs.
// For images and for sequences (one or two spatial dimensions).
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// Writes result 1 of a call of `convolution_backward`, dw, whose tensors lie row-major. Scratch as
// the result says.
ops::Prepared im2col_weight_gradient(const ops::Call& call);

// The same where all lie channels-last, of one group, without a dilation of the last dimension.
ops::Prepared im2col_weight_gradient_last(const ops::Call& call);

}  // namespace poptorch::kernels
