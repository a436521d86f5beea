// Host tensors of the runtime: row-major, with or without memory of their own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ir/type.h"

namespace poptorch::runtime {

// Bytes of someone else's, with their meaning.
struct View {
  ir::DType dtype = ir::DType::f32;
  ir::Dims shape;
  const std::byte* data = nullptr;

  int64_t numel() const { return ir::product(shape); }
  size_t bytes() const { return static_cast<size_t>(ir::Type{dtype, shape, {}}.bytes()); }
  // "f32[3,4]"
  std::string text() const { return ir::Type{dtype, shape, {}}.text(); }
};

struct Array {
  ir::DType dtype = ir::DType::f32;
  ir::Dims shape;
  std::vector<std::byte> data;

  Array() = default;
  // Zeros.
  Array(ir::DType dtype, ir::Dims shape);

  View view() const { return {dtype, shape, data.data()}; }
};

// The dtype that a program has instead: int32 for int64 and float32 for float64,
// unless the program has `wanted` itself.
ir::DType narrowed(ir::DType dtype, ir::DType wanted);

// The values of a tensor in the dtype that it is narrowed to. The limits of int64 and float64,
// which programs use as "infinite", become those of int32 and float32; another value that does not
// fit is a user error that calls the tensor `what`.
Array narrow(const View& tensor, ir::DType to, const std::string& what);

// The reverse, for a tensor that was `before`: elements whose narrow value is unchanged keep their
// full precision.
Array widen(const View& values, const View& before);

}  // namespace poptorch::runtime
