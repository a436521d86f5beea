// cast: every dtype to every other, through one of three wide types, so that the number of loops
// grows with the number of dtypes and not with its square.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduction/types.h"
#include "kernels/simd/convert.h"
#include "support/mutant.h"

namespace poptorch::kernels {

namespace {

using ir::DType;
using simd::loop_block;

// The type that values of T pass through.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, T, int64_t>;

// Integers wrap around. A float outside of the range of int32, for uint8 of int64, has no defined
// result, as in torch: it passes through the same types as there.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bool>) return value != From{0};
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 4) {
    using Passed = std::conditional_t<std::is_signed_v<To>, int32_t, int64_t>;
    return static_cast<To>(static_cast<Passed>(value));
  }
  return static_cast<To>(value);
}

template <typename From>
void read(const void* from, int64_t step, int64_t n, void* to) {
  const From* x = static_cast<const From*>(from);
  auto* out = static_cast<Wide<From>*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Wide<From>>(x[i * step]);
}

template <typename WideType, typename To>
void write(const void* from, int64_t n, void* to) {
  const auto* x = static_cast<const WideType*>(from);
  To* out = static_cast<To*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(x[i]);
}

using Read = void (*)(const void*, int64_t, int64_t, void*);
using Write = void (*)(const void*, int64_t, void*);

template <DType half>
void read_half(const void* from, int64_t step, int64_t n, void* to) {
  uint16_t block[loop_block];
  const auto* x = static_cast<const uint16_t*>(from);
  if (step != 1) {
    for (int64_t i = 0; i < n; ++i) block[i] = x[MUTANT(half_cast_ignores_step) ? i : i * step];
    x = block;
  }
  const simd::ConvertTable& table = simd::convert_table();
  (half == DType::f16 ? table.f16_to_f32 : table.bf16_to_f32)(x, static_cast<float*>(to), n);
}

Read reader(DType from) {
  if (from == DType::f16) return read_half<DType::f16>;
  if (from == DType::bf16) return read_half<DType::bf16>;
  return with_type(from, []<typename T>(T) { return &read<T>; });
}

template <typename WideType, DType half>
void write_half(const void* from, int64_t n, void* to) {
  float block[loop_block];
  const auto* x = static_cast<const WideType*>(from);
  const float* floats = block;
  if constexpr (std::is_same_v<WideType, float>) {
    floats = x;
  } else {
    for (int64_t i = 0; i < n; ++i) block[i] = static_cast<float>(x[i]);
  }
  const simd::ConvertTable& table = simd::convert_table();
  auto* out = static_cast<uint16_t*>(to);
  (half == DType::f16 ? table.f32_to_f16 : table.f32_to_bf16)(floats, out, n);
}

template <typename WideType>
Write writer(DType to) {
  if (to == DType::f16) return write_half<WideType, DType::f16>;
  if (to == DType::bf16) return write_half<WideType, DType::bf16>;
  return with_type(to, []<typename T>(T) { return &write<WideType, T>; });
}

Write writer(DType from, DType to) {
  if (from == DType::f64) return writer<double>(to);
  return ir::is_float(from) ? writer<float>(to) : writer<int64_t>(to);
}

// Which loops a cast needs; its parameters.
struct Pair {
  Read read;
  Write write;
  int64_t from_bytes;
  int64_t to_bytes;
  bool wide_already;  // values of step 1 can be written from where they are
};

void cast_loop(const simd::InnerLoop& s) {
  Pair pair;
  std::memcpy(&pair, s.params, sizeof pair);
  const auto* from = static_cast<const std::byte*>(s.in[0]);
  auto* to = static_cast<std::byte*>(s.out);
  const bool in_place = pair.wide_already && s.step[0] == 1;
  alignas(64) std::byte wide[loop_block * 8];
  for (int64_t i = 0; i < s.n; i += loop_block) {
    const int64_t n = std::min(loop_block, s.n - i);
    const std::byte* x = from + i * s.step[0] * pair.from_bytes;
    if (!in_place) pair.read(x, s.step[0], n, wide);
    pair.write(in_place ? x : wide, n, to + i * pair.to_bytes);
  }
}

}  // namespace

Function cast_function(DType from, DType to) {
  const bool wide = from == DType::f32 || from == DType::f64 || from == DType::i64;
  const Pair pair = {reader(from), writer(from, to), ir::item_bytes(from), ir::item_bytes(to),
                     wide};
  Function function{cast_loop, {}, 300, 1};
  static_assert(sizeof pair <= sizeof function.params);
  std::memcpy(function.params.data(), &pair, sizeof pair);
  return function;
}

}  // namespace poptorch::kernels
