// Elements of tensors of any dtype and strides, one after the other, as doubles.
#pragma once

#include <cstdint>

#include "ir/element.h"
#include "ir/type.h"

namespace poptorch::run {

// The bits of a float format: all but the sign, and those of an infinity; larger ones are NaN.
struct F16Bits {
  using Stored = uint16_t;
  static constexpr Stored magnitude = 0x7fff, infinity = 0x7c00;
};
struct BF16Bits {
  using Stored = uint16_t;
  static constexpr Stored magnitude = 0x7fff, infinity = 0x7f80;
};
struct F32Bits {
  using Stored = uint32_t;
  static constexpr Stored magnitude = 0x7fffffff, infinity = 0x7f800000;
};
struct F64Bits {
  using Stored = uint64_t;
  static constexpr Stored magnitude = 0x7fffffffffffffff, infinity = 0x7ff0000000000000;
};

// fn(the bits of a dtype of floats).
auto with_float(ir::DType dtype, const auto& fn) {
  switch (dtype) {
    case ir::DType::f16: return fn(F16Bits{});
    case ir::DType::bf16: return fn(BF16Bits{});
    case ir::DType::f64: return fn(F64Bits{});
    default: return fn(F32Bits{});
  }
}

// Walks through a tensor in the order of `sizes`, to which it is broadcast.
class Elements {
 public:
  Elements(const ir::Type& type, const void* data, const ir::Dims& sizes)
      : dtype_(type.dtype),
        data_(data),
        sizes_(sizes),
        strides_(ir::broadcast_strides(type, sizes)),
        at_(sizes.size(), 0) {}

  double value() const { return ir::element_at(dtype_, data_, offset_); }
  void next() {
    for (size_t dim = sizes_.size(); dim-- > 0;) {
      offset_ += strides_[dim];
      if (++at_[dim] < sizes_[dim]) return;
      offset_ -= strides_[dim] * sizes_[dim];
      at_[dim] = 0;
    }
  }

 private:
  ir::DType dtype_;
  const void* data_;
  ir::Dims sizes_;
  ir::Dims strides_;
  ir::Dims at_;
  int64_t offset_ = 0;
};

}  // namespace poptorch::run
