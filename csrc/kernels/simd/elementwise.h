// Element-wise functions of f32, for the instruction set in use.
#pragma once

#include "kernels/simd/strip.h"

namespace poptorch::simd {

// Functions of one operand, x; results are f32, or bool for predicates.
std::span<const NamedStrip> unary_f32();
// Functions of two operands, x and y.
std::span<const NamedStrip> binary_f32();

}  // namespace poptorch::simd
