// 16-bit operands of loops that compute in f32: a block of elements is upcast into memory that
// stays in the first cache, the f32 loop runs on it, its results are rounded when stored. Both
// formats round to nearest even; a NaN stays one.
#pragma once

#include "ir/dtype.h"
#include "kernels/simd/convert.h"
#include "kernels/simd/inner_loop.h"

namespace poptorch::kernels {

// Conversions of n elements side by side, for this CPU.
using Upcast = void (*)(const uint16_t* x, float* out, int64_t n);
using UpcastRows = void (*)(const uint16_t* x, float* out, const simd::StridedRows& rows);
using Downcast = void (*)(const float* x, uint16_t* out, int64_t n);
using Round = void (*)(float* x, int64_t n);  // downcast and upcast again, in place

// nullptr for dtypes that are not 16-bit floats: nothing is to be converted.
inline Upcast upcast_from(ir::DType dtype) {
  const simd::ConvertTable& table = simd::convert_table();
  if (dtype == ir::DType::f16) return table.f16_to_f32;
  return dtype == ir::DType::bf16 ? table.bf16_to_f32 : nullptr;
}

inline UpcastRows upcast_rows_from(ir::DType dtype) {
  const simd::ConvertTable& table = simd::convert_table();
  if (dtype == ir::DType::f16) return table.f16_rows_to_f32;
  return dtype == ir::DType::bf16 ? table.bf16_rows_to_f32 : nullptr;
}

inline Downcast downcast_to(ir::DType dtype) {
  const simd::ConvertTable& table = simd::convert_table();
  if (dtype == ir::DType::f16) return table.f32_to_f16;
  return dtype == ir::DType::bf16 ? table.f32_to_bf16 : nullptr;
}

inline Round round_to(ir::DType dtype) {
  const simd::ConvertTable& table = simd::convert_table();
  if (dtype == ir::DType::f16) return table.round_to_f16;
  return dtype == ir::DType::bf16 ? table.round_to_bf16 : nullptr;
}

// The same within inner loops.
inline simd::Rounding rounding_of(ir::DType dtype) {
  if (dtype == ir::DType::f16) return simd::Rounding::f16;
  return dtype == ir::DType::bf16 ? simd::Rounding::bf16 : simd::Rounding::none;
}

}  // namespace poptorch::kernels
