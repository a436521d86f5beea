// Convolutions with a 1x1 kernel as products of matrices, image by image, or one for all images
// that lie channels-last: no layout changes, and faster than oneDNN's, gradients and strides above
// all.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Of tensors that lie row-major or all channels-last.
ops::Prepared pointwise_convolution(const ConvProblem& problem);
ops::Prepared pointwise_gradient(const ConvProblem& problem);

// The same, in any direction, of 16-bit tensors that lie as one matrix of pixels times channels,
// upcast in cache; whether its products, and those of the gradients, are computed so.
bool has_half_products(const ConvProblem& problem);
ops::Prepared half_pointwise(const ConvProblem& problem);

// Whether GEMM takes a scale for the row packed_convolution with such a kernel; the weights lie
// alike then, packed or not. Of the activations only relu is applied.
bool is_scaled_product(const ConvProblem& problem);
ops::Prepared scaled_product(const ops::Call& call);

// Copies n numbers of operand 3 of packed_convolution, the residual, to the result, unless they are
// there.
void copy_residual(const ops::Args& args, int64_t n);

}  // namespace poptorch::kernels
