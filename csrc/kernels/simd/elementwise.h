// Element-wise functions of f32, for the instruction set in use.
#pragma once

#include "kernels/simd/inner_loop.h"

namespace poptorch::simd {

// Functions of one operand, x; results are f32, or bool for predicates.
std::span<const NamedLoop> unary_f32();
// Functions of two operands, x and y.
std::span<const NamedLoop> binary_f32();

}  // namespace poptorch::simd
