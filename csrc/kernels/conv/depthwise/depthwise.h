// Convolutions of each channel by itself, over images with channels last; oneDNN is slow at their
// gradients.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Of results and gradients of inputs.
ops::Prepared depthwise_convolution(const ConvProblem& problem);
ops::Prepared depthwise_weight_gradient(const ConvProblem& problem);

}  // namespace poptorch::kernels
