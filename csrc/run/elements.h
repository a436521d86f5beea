// Arithmetic of the engine itself: sums of output steps and of replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/dtype.h"

namespace poptorch::run {

// Sums over steps, made in a type that has room for them: float for 16-bit floats, 64 bits for
// integers. The bytes of one.
int64_t bytes_of_sum(ir::DType dtype);
// sums[i] += from[i]; `is_first`: sums[i] = from[i].
void sum_elements(ir::DType dtype, void* sums, const void* from, int64_t numel, bool is_first);
// Writes the sums, in one rounding; of bools whether any was true. Whether all of them fit.
[[nodiscard]] bool store_sums(ir::DType dtype, void* to, const void* sums, int64_t numel);

// Writes the sum (or the mean) over all inputs to every output, in one rounding for half types. The
// sum is a binary tree over the numbers of the inputs (the left part has the largest power of two
// of them), so that the sums of 2^n neighbours can be computed elsewhere and give the same bits. An
// output may be the input of the same number. Integers: the mean rounds to zero.
struct Reduction {
  ir::DType dtype = ir::DType::f32;
  int64_t numel = 0;
  bool is_mean = false;
  int64_t first = 0;  // elements first .. first + numel
};
void reduce_elements(const Reduction& what, const std::vector<const void*>& inputs,
                     const std::vector<void*>& outputs, int threads);

}  // namespace poptorch::run
