// The table of convolution algorithms, for results and both gradients.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"
#include "support/algorithm.h"

namespace poptorch::kernels {

using PrepareConv = ops::Prepared (*)(const ConvProblem&);
using ConvAlgorithm = Algorithm<ConvProblem, PrepareConv>;

const AlgorithmTable<ConvProblem, PrepareConv>& conv_algorithms();

// By the one that the table chooses, which the result names.
ops::Prepared prepare_conv(const ConvProblem& problem);

// How pack_convolution lays weights out for an algorithm.
enum class WeightForm {
  as_they_lie,  // [outputs, inputs, height, width]
  by_tap,       // [height, width, inputs, outputs]
  onednn,       // in oneDNN's own layout
};
WeightForm weight_form(const ConvAlgorithm& chosen, const ConvProblem& problem);

}  // namespace poptorch::kernels
