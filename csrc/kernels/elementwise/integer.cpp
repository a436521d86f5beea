// Element-wise functions of integers and bools. Arithmetic wraps around; divisors are not 0 (the
// kernel looks before).
#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/scalar_loops.h"
#include "kernels/reduction/types.h"

namespace poptorch::kernels {

namespace {

// Unsigned and at least as wide as int: narrower types would be promoted to int, where overflow is
// undefined.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

#define W(v) static_cast<Wrapping<T>>(v)

// What bitwise_not flips: of a bool, its one bit.
template <typename T>
constexpr Wrapping<T> all_ones = std::is_same_v<T, bool> ? 1 : ~Wrapping<T>{0};

// The quotient -min, which T does not have, traps on x86.
template <typename T>
bool is_minus_one(T y) {
  return std::is_signed_v<T> && y == static_cast<T>(-1);
}

template <typename T>
T divide(T x, T y) {
  return static_cast<T>(is_minus_one(y) ? W(0) - W(x) : W(x / y));
}

template <typename T>
T modulo(T x, T y) {
  return is_minus_one(y) ? T{0} : static_cast<T>(x % y);
}

template <typename T>
T floor_divide(T x, T y) {
  return static_cast<T>(W(divide(x, y)) - (modulo(x, y) != 0 && (x < T{0}) != (y < T{0})));
}

template <typename T>
T floor_modulo(T x, T y) {
  const T r = modulo(x, y);
  return r != 0 && (r < T{0}) != (y < T{0}) ? static_cast<T>(r + y) : r;
}

// A negative exponent gives the whole part of the true power.
template <typename T>
T power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0) {
      if (base == 1) return 1;
      return base == -1 ? static_cast<T>(exponent % 2 == 0 ? 1 : -1) : T{0};
    }
  }
  Wrapping<T> out = 1, factor = W(base);
  for (auto left = W(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) out *= factor;
    factor *= factor;
  }
  return static_cast<T>(out);
}

// A limit given as a float; beyond the range of T it is T's limit.
template <typename T>
T limit(double value) {
  using Limits = std::numeric_limits<T>;
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<T>(value);
}

#define UNARY(name, Result, value)                          \
  template <typename T>                                     \
  struct name##_op {                                        \
    static Result of(T x, const double* params) {           \
      return (void)x, (void)params, static_cast<Result>(value); \
    }                                                       \
  };
#define BINARY(name, Result, value)                 \
  template <typename T>                             \
  struct name##_op {                                \
    static Result of(T x, T y, const double* params) { \
      return (void)params, static_cast<Result>(value); \
    }                                               \
  };
#include "kernels/elementwise/integer.def"

template <typename T>
constexpr simd::NamedLoop unary_functions[] = {
#define UNARY(name, Result, value) {#name, unary_loop<name##_op<T>, T, Result>, 500},
#define BINARY(name, Result, value)
#include "kernels/elementwise/integer.def"
};

template <typename T>
constexpr simd::NamedLoop binary_functions[] = {
#define UNARY(name, Result, value)
#define BINARY(name, Result, value) {#name, binary_loop<name##_op<T>, T, Result>, 1000},
#include "kernels/elementwise/integer.def"
};

// fn(T{}) of integers and bools; none for floats.
std::span<const simd::NamedLoop> functions_for(ir::DType dtype, const auto& fn) {
  if (ir::is_float(dtype)) return {};
  return with_type(dtype, [&]<typename T>(T type) -> std::span<const simd::NamedLoop> {
    if constexpr (std::is_integral_v<T>) return fn(type);
    return {};
  });
}

std::span<const simd::NamedLoop> unary_integer(ir::DType dtype) {
  return functions_for(dtype, []<typename T>(T) { return std::span(unary_functions<T>); });
}

std::span<const simd::NamedLoop> binary_integer(ir::DType dtype) {
  return functions_for(dtype, []<typename T>(T) { return std::span(binary_functions<T>); });
}

AT_LOAD("functions.integer") {
  function_tables().push_back({"integer", unary_integer, binary_integer});
}

}  // namespace

}  // namespace poptorch::kernels
