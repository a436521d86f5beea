// Arithmetic of the engine itself: sums of output steps and of replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/dtype.h"

namespace poptorch::run {

// to[i] += from[i]; bool counts as "or", half types round after each step.
void add_elements(ir::DType dtype, void* to, const void* from, int64_t numel);

// Writes the sum (or the mean) over all inputs to every output, input 0 first, in one rounding for
// half types. An output may be the input of the same number. Integers: the mean rounds to zero.
struct Reduction {
  ir::DType dtype = ir::DType::f32;
  int64_t numel = 0;
  bool is_mean = false;
};
void reduce_elements(const Reduction& what, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, int threads);

}  // namespace poptorch::run
