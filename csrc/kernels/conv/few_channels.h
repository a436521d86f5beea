// Convolutions of channels-last f32 images with few channels, those of digits and photos: of one or
// two channels what oneDNN does leaves most lanes of a vector empty. Vectors hold outputs here; a
// tile is some neighbouring pixels by two vectors of outputs, and a number of the image is
// multiplied with both.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

// A call of the row `convolution`, with channels as dimension 1, and its result, images that lie
// channels-last.
ops::Prepared few_convolution(const ops::Call& call);

// The same of the row packed_convolution, with weights as they lie in the module, packed or not. Of
// the activations only relu is applied.
ops::Prepared packed_few_convolution(const ops::Call& call);

// The gradient of the weight, result 1 of the row `convolution_backward`. The order of its sums
// does not depend on the number of threads. For multiples of so many outputs.
int64_t few_lanes();
ops::Prepared few_weight_gradient(const ops::Call& call);

}  // namespace poptorch::kernels
