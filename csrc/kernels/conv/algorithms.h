// The table of convolution algorithms, for results and both gradients. Rows that call PyTorch are
// added by kernels/aten, which this folder does not know.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"
#include "support/algorithm.h"

namespace poptorch::kernels {

// How pack_convolution lays weights out for an algorithm.
enum class WeightForm {
  as_they_lie,  // [outputs, inputs, height, width]
  by_tap,       // [height, width, inputs, outputs]
  onednn,       // in oneDNN's own layout; with one input channel by tap
};

// What a row computes by.
struct ConvMethod {
  ops::Prepared (*prepare)(const ConvProblem&);
  WeightForm form = WeightForm::as_they_lie;
  // For the row bf16x3_convolution, where numbers have no parts: without memory of the program.
  // Only the row onednn has it.
  RestOfOutputs (*rest)(const ConvProblem&) = nullptr;
};
using ConvAlgorithm = Algorithm<ConvProblem, ConvMethod>;

AlgorithmTable<ConvProblem, ConvMethod>& conv_algorithms();

// Cost of copies of operands that do not lie channels-last, where the result does, which oneDNN
// makes, too.
double copy_cost(const ConvProblem& problem);

// By the one that the table chooses, which the result names.
ops::Prepared prepare_conv(const ConvProblem& problem);

// 16-bit tensors converted to f32 around another algorithm, which it names.
ops::Prepared upcast_convolution(const ConvProblem& problem);

}  // namespace poptorch::kernels
