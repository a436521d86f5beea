// 3x3 convolutions of channels-last f32 images by Winograd's F(2x2, 3x3): a tile of 4x4 pixels and
// the kernel are each transformed to 16 numbers, whose products, summed over the channels, are
// transformed to 2x2 pixels of the result. There are 16 products where there were 36, and the
// transformations only add: rounding errors are those of other ways to sum.
//
// Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
//
// Where the result is no finite number, pixels of the tile outside of the kernel may have
// had a part in it: that vector of outputs is computed again, from the pixels within it.
//
// Weights are transformed in each call, for the cost of some tiles.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Of results and gradients of inputs. With packed weights, of the activations only relu is applied.
ops::Prepared winograd(const ConvProblem& problem);

}  // namespace poptorch::kernels
