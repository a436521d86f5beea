// The gradient of a convolution's weight as products of matrices, strip by strip:
//
//   dw[o, (kh, kw, c)] = sum over pixels of dy[o, pixel] * im2col(x)[pixel, (kh, kw, c)]
//
// A row of im2col is what the kernel sees of the input at one pixel of the output. Those of a strip
// of a few hundred pixels are laid out in scratch, channels last, so that they are copied in runs.
// For images and for sequences (one or two spatial dimensions).
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Of tensors that lie row-major.
ops::Prepared im2col_weight_gradient(const ConvProblem& problem);

// Where all lie channels-last, of one group, without a dilation of the last dimension.
ops::Prepared im2col_weight_gradient_last(const ConvProblem& problem);

}  // namespace poptorch::kernels
