// Convolutions of operands that do not lie channels-last, whose result does: copies that do, around
// another algorithm. oneDNN copies them, too, and row by row.
#pragma once

#include "kernels/conv/problem.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Whether an operand of one result or gradient lies otherwise.
bool has_other_order(const ConvProblem& problem);

// The same problem on copies; it is not to be prepared.
ConvProblem reordered(const ConvProblem& problem);

// By the algorithm that the table chooses for `reordered`.
ops::Prepared reordered_convolution(const ConvProblem& problem);

}  // namespace poptorch::kernels
