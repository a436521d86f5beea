// Convolutions of each channel by itself, over images with channels last; oneDNN is slow at their
// gradients.
#pragma once

#include "ops/kernel.h"

namespace poptorch::kernels {

ops::Prepared depthwise_convolution(const ops::Call& call);
// Of the input and of the weight, as the call's output_mask says; not of the bias.
ops::Prepared depthwise_input_gradient(const ops::Call& call);
ops::Prepared depthwise_weight_gradient(const ops::Call& call);

}  // namespace poptorch::kernels
