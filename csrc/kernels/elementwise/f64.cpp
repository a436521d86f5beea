// Element-wise functions of f64: the same formulas as f32, on single doubles.
#include <cmath>
#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/scalar_loops.h"
#include "support/mutant.h"

namespace poptorch::kernels {

namespace f64 {

using V = double;
using M = bool;

constexpr double k(double constant) { return constant; }
inline double select(bool condition, double yes, double no) { return condition ? yes : no; }
inline double minimum(double x, double y) { return x < y || x != x ? x : y; }
inline double maximum(double x, double y) { return x > y || x != x ? x : y; }
inline double multiply_add(double x, double y, double z) { return x * y + z; }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double normal_cdf(double x) { return 0.5 * (1.0 + std::erf(x * M_SQRT1_2)); }
inline double round(double x) { return std::nearbyint(x); }
using std::abs, std::sqrt, std::exp, std::exp2, std::expm1, std::log, std::log2, std::log10;
using std::log1p, std::sin, std::cos, std::tan, std::asin, std::acos, std::atan, std::sinh;
using std::cosh, std::asinh, std::acosh, std::atanh, std::tanh, std::erf, std::erfc, std::floor;
using std::atan2, std::ceil, std::copysign, std::fmod, std::pow, std::trunc;

#include "kernels/simd/vec/functions.inl"

#define p(i) params[i]
#define UNARY(name, picoseconds, value)                                              \
  struct name##_op {                                                                 \
    static auto of(double x, [[maybe_unused]] const double* params) { return value; } \
  };
#define PREDICATE UNARY
#include "kernels/simd/unary.def"
#undef UNARY
#define BINARY(name, picoseconds, value)                                                       \
  struct name##_op {                                                                           \
    static auto of(double x, double y, [[maybe_unused]] const double* params) { return value; } \
  };
#define COMPARE BINARY
#include "kernels/simd/binary.def"
#undef BINARY
#undef PREDICATE
#undef COMPARE
#undef p

#define UNARY(name, picoseconds, value) \
  {#name, unary_loop<name##_op, double, double>, 8 * picoseconds},
#define PREDICATE(name, picoseconds, value) \
  {#name, unary_loop<name##_op, double, uint8_t>, 8 * picoseconds},
constexpr simd::NamedLoop unary_functions[] = {
#include "kernels/simd/unary.def"
};
#define BINARY(name, picoseconds, value) \
  {#name, binary_loop<name##_op, double, double>, 8 * picoseconds},
#define COMPARE(name, picoseconds, value) \
  {#name, binary_loop<name##_op, double, uint8_t>, 8 * picoseconds},
constexpr simd::NamedLoop binary_functions[] = {
#include "kernels/simd/binary.def"
};

}  // namespace f64

AT_LOAD("functions.f64") {
  function_tables().push_back(
      {"f64", [](ir::DType) { return std::span<const simd::NamedLoop>(f64::unary_functions); },
       [](ir::DType) { return std::span<const simd::NamedLoop>(f64::binary_functions); }});
}

}  // namespace poptorch::kernels
