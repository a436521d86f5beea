// Convolutions with a 1x1 kernel as products of matrices, image by image, or one for all images
// that lie channels-last: no layout changes, and faster than oneDNN's, gradients and strides above
// all.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// Whether the call (of either row) is such a one, with operands and results that lie row-major or
// all channels-last; x, w and y are the types of input, weight and output.
bool is_pointwise(const ops::Call& call, const ir::Type& x, const ir::Type& w, const ir::Type& y);

ops::Prepared pointwise_convolution(const ops::Call& call);
ops::Prepared pointwise_convolution_backward(const ops::Call& call);

// The same of halves that lie as one matrix of pixels times channels, widened in cache; but for the
// gradient of the bias.
bool has_half_pointwise(const ops::Call& call, const ir::Type& x, const ir::Type& w,
                        const ir::Type& y);
ops::Prepared half_pointwise_convolution(const ops::Call& call);
ops::Prepared half_pointwise_gradients(const ops::Call& call);

// Whether the row packed_convolution, with these attributes, is such a product and one that gemm
// computes with a scale; the weights lie alike then, packed or not. `input_size` has the channels
// second. Of the activations only relu is applied.
bool is_scaled_product(const ir::Attrs& attrs, const ir::Dims& weight_size,
                       const ir::Dims& input_size);
ops::Prepared scaled_product(const ops::Call& call);

// Copies n numbers of operand 3 of packed_convolution, the residual, to the result, unless they are
// there.
void copy_residual(const ops::Args& args, int64_t n);

}  // namespace poptorch::kernels
