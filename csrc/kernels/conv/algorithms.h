// The table of convolution algorithms, for results and both gradients. Rows that call PyTorch are
// added by library.cpp.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"
#include "support/algorithms/algorithm.h"
#include "support/loading/at_load.h"

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

// A row of it: CONVOLUTION("winograd", "3x3 kernels by ...", applies, cost, {prepare}).
#define CONVOLUTION(name, ...) \
  AT_LOAD("algorithm.conv." name) { conv_algorithms().add({{name, __VA_ARGS__}}); }

// How convolutions are measured: on few images, in one thread. A problem of packed weights is
// measured with weights as the op `convolution` has them: it must not matter who asks, what packs
// them or what reads them.
std::string measuring_key(const ConvProblem& p, bool has_unit);
std::vector<Trial> conv_trials(const ConvProblem& p, const std::vector<const ConvAlgorithm*>& rows);

// A trial of the kernel that `prepare` makes for each of the same problems; none where one of
// `applies` does not hold for what is measured.
struct ConvTrialRow {
  std::function<bool(const ConvProblem&)> applies;
  std::function<ops::Prepared(const ConvProblem&)> prepare;
};
std::vector<Trial> conv_trials(const ConvProblem& p, const std::vector<ConvTrialRow>& rows);

// Cost of copies of operands that do not lie channels-last, where the result does, which oneDNN
// makes, too.
double copy_cost(const ConvProblem& problem);

// By the one that the table chooses, which the result names.
ops::Prepared prepare_conv(const ConvProblem& problem);

// 16-bit tensors converted to f32 around another algorithm, which it names.
ops::Prepared upcast_convolution(const ConvProblem& problem);

}  // namespace poptorch::kernels
