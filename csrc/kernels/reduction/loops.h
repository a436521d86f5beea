// Inner loops of reductions of contiguous f32, compiled once for each instruction set; plain sums
// also of 16-bit floats. Sums are made in f64.
#pragma once

#include <cstdint>

#include "kernels/simd/convert.h"

namespace poptorch::simd {

// E: float, F16, BF16.
template <typename E>
struct SumLoops {
  double (*sum)(const E* x, int64_t n);
  // Takes `rows` rows of n entries into the n entries of acc.
  void (*sum_rows)(double* acc, const E* x, int64_t row_stride, int64_t rows, int64_t n);
};

struct ReduceLoops {
  SumLoops<float> f32;
  SumLoops<F16> f16;
  SumLoops<BF16> bf16;
  // One number of n entries side by side.
  double (*squares)(const float* x, int64_t n, double shift);  // sum of (x - shift)^2
  double (*exps)(const float* x, int64_t n, float shift);      // sum of e^(x - shift)
  float (*largest)(const float* x, int64_t n);                 // NaN when there is one; n >= 1
  float (*smallest)(const float* x, int64_t n);
  void (*running_sum)(const float* x, float* out, int64_t n);  // out[i] = x[0] + ... + x[i]
  // As SumLoops::sum_rows.
  void (*squares_rows)(double* acc, const float* x, int64_t row_stride, int64_t rows, int64_t n,
                       const double* shift);
  void (*exps_rows)(double* acc, const float* x, int64_t row_stride, int64_t rows, int64_t n,
                    const float* shift);
  void (*largest_rows)(float* acc, const float* x, int64_t row_stride, int64_t rows, int64_t n);
  void (*smallest_rows)(float* acc, const float* x, int64_t row_stride, int64_t rows, int64_t n);
};

// Of the instruction set in use: to be got when a kernel is prepared.
const ReduceLoops& reduce_loops();

}  // namespace poptorch::simd
