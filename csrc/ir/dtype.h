// Element types of the IR.
#pragma once

#include <cstdint>
#include <string_view>

namespace poptorch::ir {

enum class DType : uint8_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

// Bytes of one element.
int64_t item_bytes(DType dtype);

// The name in IR text: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64.
const char* name_of(DType dtype);

// The dtype of that name; a user error that lists the names when there is none.
DType dtype_from_name(std::string_view name);
bool is_dtype_name(std::string_view name);

constexpr bool is_float(DType dtype) { return dtype >= DType::f16; }
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
constexpr bool is_integer(DType dtype) {
  return dtype >= DType::u8 && dtype <= DType::i64;
}

}  // namespace poptorch::ir
