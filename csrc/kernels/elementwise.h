// Element-wise functions by name and dtype.
#pragma once

#include "ir/dtype.h"
#include "kernels/simd/strip.h"

namespace poptorch::kernels {

// The functions of one or two operands for operands of `dtype`; empty for the 16-bit floats.
std::span<const simd::NamedStrip> unary_strips(ir::DType dtype);
std::span<const simd::NamedStrip> binary_strips(ir::DType dtype);

// Tables of one dtype, in files of their own.
std::span<const simd::NamedStrip> unary_f64();
std::span<const simd::NamedStrip> binary_f64();
std::span<const simd::NamedStrip> unary_integer(ir::DType dtype);  // bool counts as one
std::span<const simd::NamedStrip> binary_integer(ir::DType dtype);

// condition ? x : y for items of this size; operands condition (bool), x, y.
simd::StripFn where_strip(int64_t item_bytes);
// A copy.
simd::StripFn copy_strip(int64_t item_bytes);

}  // namespace poptorch::kernels
