// 3x3 convolutions of channels-last f32 images by Winograd's F(2x2, 3x3): a patch of 4x4 pixels and
// the kernel are each transformed to 16 numbers, whose products, summed over the channels, are
// transformed to 2x2 pixels of the result. There are 16 products where there were 36, and the
// transformations only add: rounding errors are those of other ways to sum.
//
// Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
//
// Where the result is no finite number, pixels of the patch that the kernel does not see may have
// had a part in it: that vector of outputs is computed again, from what the kernel sees.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// Whether weights of these sizes are packed in this form; `input_size` has the channels second.
bool has_winograd(const ir::Attrs& attrs, const ir::Dims& weight_size, const ir::Dims& input_size);

// Whether a call of the row packed_convolution takes weights as they lie in the module: so few that
// it can transform them itself.
bool has_unpacked_winograd(const ops::Call& call);

// The rows pack_convolution and packed_convolution. Of the activations only relu is applied.
ops::Prepared pack_winograd(const ops::Call& call);
ops::Prepared packed_winograd(const ops::Call& call);

// Calls of the row `convolution`, with channels as dimension 1, and the gradient of the input,
// result 0 of the row `convolution_backward`.
bool has_winograd_convolution(const ops::Call& call);
ops::Prepared winograd_convolution(const ops::Call& call);
bool has_winograd_input_gradient(const ops::Call& call);
ops::Prepared winograd_input_gradient(const ops::Call& call);

}  // namespace poptorch::kernels
