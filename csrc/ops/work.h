// The work of an op: FLOPs and bytes by its row (ops/op_def.h says what counts), and the rules that
// families share.
#pragma once

#include <optional>

#include "ops/op_def.h"

namespace poptorch::ops {

struct Work {
  std::optional<double> flops;  // none: not known
  double bytes = 0;
};

// Of one run. The op must be verified; of one that has a body (`loop`) the body does not count.
Work work_of(const ir::Op& op);

// Bytes that must be read to have each element of operand i, 0 where it is absent. For an operand
// that is expanded or a part of a value, the fewest of all values that it is a view of.
double operand_bytes(const WorkInput& in, size_t i);
// Of all operands from number `first` on but number `without`, a value that is there twice once.
constexpr size_t nothing = static_cast<size_t>(-1);
double operands_bytes(const WorkInput& in, size_t first = 0, size_t without = nothing);
double results_bytes(const WorkInput& in);

// `count` if an operand or a result is of floating point, else 0.
double if_float(const WorkInput& in, double count);
double numel(const ir::Type& type);

// For columns: nothing is computed, or touched.
double none(const WorkInput& in);
// So many FLOPs for each element of the first result, or of operand `i`.
template <int each = 1>
double flops_of_result(const WorkInput& in) {
  return if_float(in, each * numel(in.result()));
}
template <size_t i = 0, int each = 1>
double flops_of_operand(const WorkInput& in) {
  return if_float(in, each * numel(in.operand(i)));
}
// Bytes of a look-up: of operand 0 no more than there are results; all else once.
double look_up_bytes(const WorkInput& in);
// Bytes of all results and operands but number i, which only gives its type.
template <size_t i>
double bytes_without(const WorkInput& in) {
  return operands_bytes(in, 0, i) + results_bytes(in);
}

}  // namespace poptorch::ops
