// Conversions between f32 and the 16-bit floats, rounding to nearest even.
#pragma once

#include <cstdint>
#include <type_traits>

#include "support/cpu/half.h"

namespace poptorch::simd {

// Elements of 16 bits, where the type says which.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

// What loops over elements of type T compute in: 16-bit floats are upcast, and rounded when stored.
template <typename T>
using NumberOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// An element as a number; upcast where it has 16 bits.
template <typename T>
T number_of(T x) {
  return x;
}
inline float number_of(F16 x) { return f16_to_float(x.bits); }
inline float number_of(BF16 x) { return bf16_to_float(x.bits); }

// Rows of n numbers each, which begin this far apart.
struct StridedRows {
  int64_t count, n, x_step, out_step;
};

struct ConvertTable {
  void (*f16_to_f32)(const uint16_t* x, float* out, int64_t n);
  void (*bf16_to_f32)(const uint16_t* x, float* out, int64_t n);
  void (*f16_rows_to_f32)(const uint16_t* x, float* out, const StridedRows& rows);
  void (*bf16_rows_to_f32)(const uint16_t* x, float* out, const StridedRows& rows);
  void (*f32_to_f16)(const float* x, uint16_t* out, int64_t n);
  void (*f32_to_bf16)(const float* x, uint16_t* out, int64_t n);
  // In place, to the nearest f32 that the format has.
  void (*round_to_f16)(float* x, int64_t n);
  void (*round_to_bf16)(float* x, int64_t n);
};

const ConvertTable& convert_table();

}  // namespace poptorch::simd
