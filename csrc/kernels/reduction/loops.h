// Inner loops of reductions of contiguous f32, compiled once for each instruction set. Sums are
// made in f64.
#pragma once

#include <cstdint>

namespace poptorch::simd {

struct ReduceLoops {
  // One number of n entries side by side.
  double (*sum)(const float* x, int64_t n);
  double (*squares)(const float* x, int64_t n, double shift);  // sum of (x - shift)^2
  double (*exps)(const float* x, int64_t n, float shift);      // sum of e^(x - shift)
  float (*largest)(const float* x, int64_t n);                 // NaN when there is one; n >= 1
  float (*smallest)(const float* x, int64_t n);
  void (*running_sum)(const float* x, float* out, int64_t n);  // out[i] = x[0] + ... + x[i]
  // Takes `rows` rows of n entries into the n entries of acc.
  void (*sum_rows)(double* acc, const float* x, int64_t row_stride, int64_t rows, int64_t n);
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
