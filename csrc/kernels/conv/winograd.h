// 3x3 convolutions of channels-last f32 images by Winograd's F(2x2, 3x3): a patch of 4x4 pixels and
// the kernel are each transformed to 16 numbers, whose products, summed over the channels, are
// transformed to 2x2 pixels of the result. There are 16 products where there were 36, and the
// transformations only add: rounding errors are those of other ways to sum.
//
// Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
//
// Where the result is no finite number, pixels of the patch that the kernel does not see may have
// had a part in it: that vector of outputs is computed again, from what the kernel sees.
//
// Weights are transformed in each call, for the cost of some patches.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// Whether a call of the row packed_convolution is computed in this way, with weights as they lie in
// the module, packed or not; `input_size` has the channels second. Of the activations only relu is
// applied.
bool has_packed_winograd(const ir::Attrs& attrs, const ir::Dims& weight_size,
                         const ir::Dims& input_size);
ops::Prepared packed_winograd(const ops::Call& call);

// The same of the row `convolution`, with channels as dimension 1, and of the gradient of the
// input, result 0 of the row `convolution_backward`.
bool has_winograd(const ops::Call& call);
ops::Prepared winograd(const ops::Call& call);
bool has_winograd_input_gradient(const ops::Call& call);
ops::Prepared winograd_input_gradient(const ops::Call& call);

}  // namespace poptorch::kernels
