// Convolutions of channels-last f32 images with few channels, those of digits and photos: of one or
// two channels what oneDNN does leaves most lanes of a vector empty. Vectors hold outputs here; a
// tile is some neighbouring pixels by two vectors of outputs, and a number of the image is
// multiplied with both.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Of images that lie channels-last, and results that do. With packed weights, of the activations
// only relu is applied.
ops::Prepared few_convolution(const ConvProblem& problem);

// The order of its sums does not depend on the number of threads. For multiples of so many outputs.
int64_t few_lanes();
ops::Prepared few_weight_gradient(const ConvProblem& problem);

}  // namespace poptorch::kernels
