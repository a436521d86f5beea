// From an IR dtype to the C++ type that a template is written for.
#pragma once

#include "ir/dtype.h"
#include "ops/kernel.h"
#include "support/error.h"

namespace poptorch::kernels {

// Calls fn(T{}) with the type of the elements, u8 for bools, as which they are stored; 16-bit
// floats have been upcast before. For kernels that make 0 and 1 of 0 and 1.
auto with_number_type(ir::DType dtype, const auto& fn) {
  switch (dtype) {
    case ir::DType::boolean:
    case ir::DType::u8: return fn(uint8_t{});
    case ir::DType::i8: return fn(int8_t{});
    case ir::DType::i16: return fn(int16_t{});
    case ir::DType::i32: return fn(int32_t{});
    case ir::DType::i64: return fn(int64_t{});
    case ir::DType::f32: return fn(float{});
    case ir::DType::f64: return fn(double{});
    default: throw_internal_error(__FILE__, __LINE__, "dtype", "a half reached a wide kernel");
  }
}

// The same with bool for bools.
auto with_type(ir::DType dtype, const auto& fn) {
  return dtype == ir::DType::boolean ? fn(bool{}) : with_number_type(dtype, fn);
}

// Calls fn(T{}) with the unsigned T of that many bytes, for elements that are only moved.
auto with_item_type(int64_t item_bytes, const auto& fn) {
  switch (item_bytes) {
    case 1: return fn(uint8_t{});
    case 2: return fn(uint16_t{});
    case 4: return fn(uint32_t{});
    default: return fn(uint64_t{});
  }
}

auto with_float_type(const ops::Call& call, ir::DType dtype, const auto& fn) {
  if (dtype == ir::DType::f64) return fn(double{});
  INTERNAL_CHECK(dtype == ir::DType::f32, "no kernel of ", call.op.name, " for ", name_of(dtype));
  return fn(float{});
}

// The types that positions and indices have.
auto with_index_type(const ops::Call& call, ir::DType dtype, const auto& fn) {
  if (dtype == ir::DType::i64) return fn(int64_t{});
  INTERNAL_CHECK(dtype == ir::DType::i32, "no kernel of ", call.op.name, " for indices of ",
                 name_of(dtype));
  return fn(int32_t{});
}

// A result of positions, of either type: for kernels that are written for many types of elements.
class Positions {
 public:
  // `dtype`: i32 or i64.
  Positions(void* data, ir::DType dtype) : data_(data), is_wide_(dtype == ir::DType::i64) {}

  void put(int64_t i, int64_t position) const {
    if (is_wide_) {
      static_cast<int64_t*>(data_)[i] = position;
    } else {
      static_cast<int32_t*>(data_)[i] = static_cast<int32_t>(position);
    }
  }

 private:
  void* data_;
  bool is_wide_;
};

// fn(T{}, Index{}): both.
auto with_float_and_index_type(const ops::Call& call, ir::DType floats, ir::DType indices,
                               const auto& fn) {
  return with_float_type(call, floats, [&]<typename T>(T number) {
    return with_index_type(call, indices,
                           [&]<typename Index>(Index index) { return fn(number, index); });
  });
}

}  // namespace poptorch::kernels
