// Single elements of tensors, in the order of their addresses.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ir/dtype.h"
#include "support/cpu/half.h"

namespace poptorch::ir {

// fn(element i): 16-bit floats as double.
auto with_element(DType dtype, const void* data, int64_t i, const auto& fn) {
  const auto load = [&]<typename T>(T element) {
    const int64_t offset = i * static_cast<int64_t>(sizeof element);
    std::memcpy(&element, static_cast<const std::byte*>(data) + offset, sizeof element);
    return element;
  };
  switch (dtype) {
    case DType::boolean: return fn(load(uint8_t{}) != 0);
    case DType::u8: return fn(load(uint8_t{}));
    case DType::i8: return fn(load(int8_t{}));
    case DType::i16: return fn(load(int16_t{}));
    case DType::i32: return fn(load(int32_t{}));
    case DType::i64: return fn(load(int64_t{}));
    case DType::f16: return fn(double{f16_to_float(load(uint16_t{}))});
    case DType::bf16: return fn(double{bf16_to_float(load(uint16_t{}))});
    case DType::f32: return fn(load(float{}));
    case DType::f64: break;
  }
  return fn(load(double{}));
}

inline double element_at(DType dtype, const void* data, int64_t i) {
  return with_element(dtype, data, i, [](auto x) { return static_cast<double>(x); });
}

// A number that converts to an element of any dtype: floats take `real`, integers `whole`, which is
// exact beyond 2^53, bools whether it is 0.
struct Number {
  double real;
  int64_t whole;

  explicit Number(int64_t value) : real(static_cast<double>(value)), whole(value) {}
  explicit Number(double value)
      : real(value), whole(std::abs(value) < 0x1p63 ? static_cast<int64_t>(value) : 0) {}
  Number(double real, int64_t whole) : real(real), whole(whole) {}
};

inline void store_element(DType dtype, void* data, int64_t i, const Number& number) {
  const auto store = [&](auto element) {
    const int64_t offset = i * static_cast<int64_t>(sizeof element);
    std::memcpy(static_cast<std::byte*>(data) + offset, &element, sizeof element);
  };
  const auto single = static_cast<float>(number.real);
  switch (dtype) {
    case DType::boolean: return store(number.real != 0);
    case DType::u8: return store(static_cast<uint8_t>(number.whole));
    case DType::i8: return store(static_cast<int8_t>(number.whole));
    case DType::i16: return store(static_cast<int16_t>(number.whole));
    case DType::i32: return store(static_cast<int32_t>(number.whole));
    case DType::i64: return store(number.whole);
    case DType::f16: return store(float_to_f16(single));
    case DType::bf16: return store(float_to_bf16(single));
    case DType::f32: return store(single);
    case DType::f64: return store(number.real);
  }
}

}  // namespace poptorch::ir
