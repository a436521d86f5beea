// Finds floating-point exceptions in what an instruction has read and made. Operands must still be
// there: a program that is checked is planned without results in place of operands.
#pragma once

#include <optional>
#include <string>

#include "assemble/program.h"

namespace poptorch::run {

struct FloatFinding {
  std::string condition;  // "division by zero"
  std::string element;    // "element [1] of f32[3]: operands 1 and 0, result inf"
  bool is_in_result = true;  // a result holds a NaN or an infinity that no operand has
};

// `pointers`: operands, then results. The first finding, in the order of results and elements.
std::optional<FloatFinding> find_exception(const assemble::FloatCheck& check,
                                           void* const* pointers, int threads);

// Which values that are not finite a tensor has: "NaN", "inf" or, of both, "NaN"; empty: none.
std::string kind_of_non_finite(const ir::Type& type, const void* data, int threads);

}  // namespace poptorch::run
