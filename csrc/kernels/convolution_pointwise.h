// Convolutions with a 1x1 kernel as products of matrices, image by image: no layout changes, and
// faster than oneDNN's for row-major images, gradients and strides above all.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// Whether the call (of either row) is such a one, with operands and results that lie row-major;
// x, w and y are the types of input, weight and output.
bool is_pointwise(const ops::Call& call, const ir::Type& x, const ir::Type& w, const ir::Type& y);

ops::Prepared pointwise_convolution(const ops::Call& call);
ops::Prepared pointwise_convolution_backward(const ops::Call& call);

}  // namespace poptorch::kernels
