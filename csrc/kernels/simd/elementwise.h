// Element-wise functions of f32, for the instruction set in use.
#pragma once

#include "kernels/simd/inner_loop.h"

namespace poptorch::simd {

// The function of one operand, x, of this name; nullptr: there is none. Results are f32, or bool
// for predicates.
const NamedLoop* unary_f32(std::string_view name);
// Of two operands, x and y.
const NamedLoop* binary_f32(std::string_view name);

// `found` in a table of f32 functions, which a runner for the present program must have.
inline const NamedLoop* needed(const NamedLoop* found) {
  if (found != nullptr) note_need("function.", found->name);
  return found;
}

}  // namespace poptorch::simd
