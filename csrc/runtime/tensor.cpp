#include "runtime/tensor.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "support/error.h"

namespace poptorch::runtime {

namespace {

using ir::DType;

// Whether it fits; `to` is the narrow value.
bool narrow_value(int64_t value, int32_t& to) {
  using Wide = std::numeric_limits<int64_t>;
  using Narrow = std::numeric_limits<int32_t>;
  const bool is_limit = value == Wide::max() || value == Wide::min();
  if (is_limit) value = value < 0 ? Narrow::min() : Narrow::max();
  to = static_cast<int32_t>(value);
  return value == to;
}

bool narrow_value(double value, float& to) {
  constexpr double most = std::numeric_limits<float>::max();
  const double size = std::fabs(value);
  const bool is_large = size > most && std::isfinite(value);
  to = is_large ? static_cast<float>(std::copysign(most, value)) : static_cast<float>(value);
  return !is_large || size == std::numeric_limits<double>::max();
}

template <typename Wide, typename Narrow>
Array narrow_all(const View& tensor, DType to, const std::string& what) {
  Array out(to, tensor.shape);
  const auto count = static_cast<size_t>(tensor.numel());
  for (size_t i = 0; i < count; ++i) {
    Wide wide = 0;
    std::memcpy(&wide, tensor.data + i * sizeof wide, sizeof wide);
    Narrow value = 0;
    USER_CHECK(narrow_value(wide, value), "[", what, "] the value ", wide, " does not fit into ",
               ir::name_of(to), ", to which ", ir::name_of(tensor.dtype),
               " is narrowed on the device. Use smaller values, or another type.");
    std::memcpy(out.data.data() + i * sizeof value, &value, sizeof value);
  }
  return out;
}

template <typename Wide, typename Narrow>
Array widen_all(const View& values, const View& before) {
  Array out(before.dtype, before.shape);
  const auto count = static_cast<size_t>(values.numel());
  for (size_t i = 0; i < count; ++i) {
    Wide wide = 0;
    Narrow value = 0, old = 0;
    std::memcpy(&wide, before.data + i * sizeof wide, sizeof wide);
    std::memcpy(&value, values.data + i * sizeof value, sizeof value);
    narrow_value(wide, old);
    if (std::memcmp(&value, &old, sizeof value) != 0) wide = static_cast<Wide>(value);
    std::memcpy(out.data.data() + i * sizeof wide, &wide, sizeof wide);
  }
  return out;
}

}  // namespace

Array::Array(DType dtype, ir::Dims shape) : dtype(dtype), shape(std::move(shape)) {
  data.resize(view().bytes());
}

DType narrowed(DType dtype, DType wanted) {
  if (dtype == DType::i64 && wanted == DType::i32) return DType::i32;
  if (dtype == DType::f64 && wanted == DType::f32) return DType::f32;
  return dtype;
}

Array narrow(const View& tensor, DType to, const std::string& what) {
  INTERNAL_CHECK(narrowed(tensor.dtype, to) == to && tensor.dtype != to, "not a narrower type");
  if (to == DType::i32) return narrow_all<int64_t, int32_t>(tensor, to, what);
  return narrow_all<double, float>(tensor, to, what);
}

Array widen(const View& values, const View& before) {
  if (before.dtype == DType::i64) return widen_all<int64_t, int32_t>(values, before);
  return widen_all<double, float>(values, before);
}

}  // namespace poptorch::runtime
