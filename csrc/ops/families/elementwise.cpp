// Rows of ops that compute each element by itself, operands broadcast together.
#include "ops/op_def.h"

#include <cmath>

#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

// The dtypes that an op computes.
enum class Kind {
  real,     // floating point
  number,   // and integers
  any,      // and bool
  logical,  // integers and bool
};

constexpr const char* words_of(Kind kind) {
  switch (kind) {
    case Kind::real: return "floating-point tensors";
    case Kind::number: return "tensors of numbers";
    case Kind::any: return "any tensors";
    case Kind::logical: return "tensors of integers or bools";
  }
  return "";
}

bool fits(Kind kind, DType dtype) {
  switch (kind) {
    case Kind::real: return ir::is_float(dtype);
    case Kind::number: return dtype != DType::boolean;
    case Kind::any: return true;
    case Kind::logical: return !ir::is_float(dtype);
  }
  return false;
}

void check_kind(const InferInput& in, Kind kind) {
  const ir::Type& x = in.operand(0);
  USER_CHECK(fits(kind, x.dtype), "[", in.op.name, "] takes ", words_of(kind), ", operand 0 is ",
             x.text(), ". Cast it.");
}

// Operands of one dtype of this kind; the result has it too.
template <Kind kind>
std::vector<ir::Type> keeps(const InferInput& in) {
  check_kind(in, kind);
  return broadcast_all(in);
}

// The same with a bool result.
template <Kind kind>
std::vector<ir::Type> tests(const InferInput& in) {
  check_kind(in, kind);
  return broadcast_to_bool(in);
}

std::vector<ir::Type> infer_div(const InferInput& in) {
  const ir::Attr* rounding = in.attrs().find(ir::attr::rounding_mode);
  if (rounding->is_none()) return keeps<Kind::real>(in);
  const std::string& mode = in.attrs().get_string(ir::attr::rounding_mode);
  USER_CHECK(mode == "floor" || mode == "trunc", "[div] rounding_mode is \"", mode,
             "\". Use \"floor\", \"trunc\" or none.");
  return keeps<Kind::number>(in);
}

std::vector<ir::Type> infer_gelu(const InferInput& in) {
  const std::string& how = in.attrs().get_string(ir::attr::approximate);
  USER_CHECK(how == "none" || how == "tanh", "[", in.op.name, "] approximate is \"", how,
             "\". Use \"none\" or \"tanh\".");
  return keeps<Kind::real>(in);
}

void check_condition(const InferInput& in, size_t i) {
  USER_CHECK(in.operand(i).dtype == DType::boolean, "[", in.op.name, "] operand ", i, " is ",
             in.operand(i).text(), ", a condition is bool. Cast it.");
}

void check_equal_dtypes(const InferInput& in, size_t i, size_t j) {
  USER_CHECK(in.operand(i).dtype == in.operand(j).dtype, "[", in.op.name, "] dtypes differ: ",
             in.operand(i).text(), " and ", in.operand(j).text(), ". Cast one of them.");
}

std::vector<ir::Type> infer_where(const InferInput& in) {
  check_condition(in, 0);
  check_equal_dtypes(in, 1, 2);
  ir::Dims sizes = broadcast_sizes(in, in.operand(1).sizes, in.operand(2).sizes);
  return {{in.operand(1).dtype, broadcast_sizes(in, in.operand(0).sizes, sizes), {}}};
}

std::vector<ir::Type> infer_masked_fill(const InferInput& in) {
  check_condition(in, 1);
  check_equal_dtypes(in, 0, 2);
  USER_CHECK(in.operand(2).numel() == 1, "[masked_fill] value is ", in.operand(2).text(),
             ", it must be one number. Use `where`.");
  return {{in.operand(0).dtype, broadcast_sizes(in, in.operand(0).sizes, in.operand(1).sizes), {}}};
}

std::vector<ir::Type> infer_cast(const InferInput& in) {
  return {{in.attrs().get_dtype(ir::attr::dtype), in.operand(0).sizes, {}}};
}

std::vector<ir::Type> infer_narrowing_cast(const InferInput& in) {
  USER_CHECK(in.operand(0).dtype == DType::i64, "[narrowing_cast] x is ", in.operand(0).text(),
             ", it must be i64. Use `cast`.");
  return {{DType::i32, in.operand(0).sizes, {}}};
}

std::vector<ir::Type> infer_full(const InferInput& in) {
  const ir::Dims sizes = in.attrs().get_ints(ir::attr::size);
  for (int64_t size : sizes) {
    USER_CHECK(size >= 0, "[", in.op.name, "] size ", ir::Attr(sizes).text(), " holds ", size,
               ". Sizes are 0 or more.");
  }
  const ir::Attr& value = *in.attrs().find(ir::attr::fill_value);
  USER_CHECK(std::holds_alternative<double>(value.value) ||
                 std::holds_alternative<int64_t>(value.value) ||
                 std::holds_alternative<bool>(value.value),
             "[full] fill_value is ", value.text(), ". Give a number or a bool.");
  return {{in.attrs().get_dtype(ir::attr::dtype), sizes, {}}};
}

std::vector<ir::Type> infer_arange(const InferInput& in) {
  const double start = in.attrs().get_float(ir::attr::start),
               end = in.attrs().get_float(ir::attr::end);
  const double step = in.attrs().get_float(ir::attr::step);
  USER_CHECK(step != 0.0 && (end - start) / step >= 0.0, "[arange] from ", start, " to ", end,
             " by steps of ", step, " never arrives. Change the sign of step.");
  return {{in.attrs().get_dtype(ir::attr::dtype),
           {static_cast<int64_t>(std::ceil((end - start) / step))}, {}}};
}

using Attrs = std::vector<AttrDef>;

// Rows of one family look alike: an ATen op of the same name, any strides, in place where the
// result has the operand's type.
OpDef unary(const char* name, const char* doc, Infer infer, Attrs attrs = {}) {
  return {.name = name,
          .aten = {concat("aten::", name)},
          .doc = doc,
          .operands = {"self"},
          .attrs = std::move(attrs),
          .infer = infer,
          .strided = Strided::all,
          .inplace = {{0}},
          .elementwise = true};
}

// `overload`: of the ATen op that takes two tensors; "" for the default one.
OpDef binary(const char* name, const char* overload, const char* doc, Infer infer,
             Attrs attrs = {}) {
  OpDef row = unary(name, doc, infer, std::move(attrs));
  row.aten[0] += overload;
  row.operands = {"self", "other"};
  row.inplace = {{0, 1}};
  return row;
}

OpDef backward(const char* name, const char* saved, const char* doc, Attrs attrs = {},
               Infer infer = keeps<Kind::real>) {
  OpDef row = binary(name, "", doc, infer, std::move(attrs));
  row.operands = {"grad_output", saved};
  return row;
}

std::vector<OpDef> plain_unary_rows() {
  constexpr Infer real = keeps<Kind::real>, number = keeps<Kind::number>;
  return {
      unary("neg", "-x.", number),
      unary("abs", "The magnitude of x.", number),
      unary("sign", "-1, 0 or 1, as x is negative, zero or positive; 0 for NaN.", number),
      unary("exp", "e to the power of x.", real),
      unary("exp2", "2 to the power of x.", real),
      unary("expm1", "exp(x) - 1, exact near 0.", real),
      unary("log", "Natural logarithm.", real),
      unary("log2", "Logarithm to base 2.", real),
      unary("log10", "Logarithm to base 10.", real),
      unary("log1p", "log(1 + x), exact near 0.", real),
      unary("sqrt", "Square root.", real),
      unary("rsqrt", "1 / sqrt(x).", real),
      unary("reciprocal", "1 / x.", real),
      unary("sin", "Sine of x radians.", real),
      unary("cos", "Cosine of x radians.", real),
      unary("tan", "Tangent of x radians.", real),
      unary("asin", "Inverse sine.", real),
      unary("acos", "Inverse cosine.", real),
      unary("atan", "Inverse tangent.", real),
      unary("sinh", "Hyperbolic sine.", real),
      unary("cosh", "Hyperbolic cosine.", real),
      unary("asinh", "Inverse hyperbolic sine.", real),
      unary("acosh", "Inverse hyperbolic cosine.", real),
      unary("atanh", "Inverse hyperbolic tangent.", real),
      unary("tanh", "Hyperbolic tangent.", real),
      unary("sigmoid", "1 / (1 + exp(-x)).", real),
      unary("erf", "Error function.", real),
      unary("erfc", "1 - erf(x).", real),
      unary("floor", "The largest whole number at most x.", number),
      unary("ceil", "The smallest whole number at least x.", number),
      unary("round", "The nearest whole number, the even one of two.", number),
      unary("trunc", "x without its fraction.", number),
      unary("frac", "x - trunc(x).", real),
      unary("bitwise_not", "All bits flipped; of bools, not x.", keeps<Kind::logical>),
      unary("logical_not", "Whether x is 0.", tests<Kind::any>),
      unary("isnan", "Whether x is NaN.", tests<Kind::number>),
      unary("isinf", "Whether x is an infinity.", tests<Kind::number>),
      unary("isfinite", "Whether x is neither NaN nor an infinity.", tests<Kind::number>),
  };
}

std::vector<OpDef> activation_rows() {
  constexpr Infer real = keeps<Kind::real>, number = keeps<Kind::number>;
  const Attrs elu = {{"alpha", 1.0}, {"scale", 1.0}, {"input_scale", 1.0}};
  return {
      unary("relu", "max(x, 0).", number),
      unary("gelu", "x times the normal distribution function; `approximate` is \"none\" or "
                    "\"tanh\".", infer_gelu, {{"approximate", "none"}}),
      unary("silu", "x sigmoid(x).", real),
      unary("mish", "x tanh(softplus(x)).", real),
      unary("softplus", "log(1 + exp(beta x)) / beta; x where beta x is above `threshold`.", real,
            {{"beta", 1.0}, {"threshold", 20.0}}),
      unary("elu", "scale x, for x <= 0: scale alpha (exp(input_scale x) - 1).", real, elu),
      unary("leaky_relu", "x, for x <= 0: negative_slope x.", real, {{"negative_slope", 0.01}}),
      unary("hardtanh", "x kept within min_val and max_val.", number,
            {{"min_val", -1.0}, {"max_val", 1.0}}),
      unary("hardsigmoid", "min(max(x + 3, 0), 6) / 6.", real),
      unary("hardswish", "x min(max(x + 3, 0), 6) / 6.", real),
      unary("threshold", "x, for x <= threshold: value.", number,
            {{"threshold", 0.0, true}, {"value", 0.0, true}}),
      unary("clamp", "x kept within min and max, where given.", number, {{"min", {}}, {"max", {}}}),
  };
}

std::vector<OpDef> backward_rows() {
  return {
      backward("threshold_backward", "self", "Gradient of threshold and relu by the operand; their "
               "result serves as well.", {{"threshold", 0.0, true}}, keeps<Kind::number>),
      backward("gelu_backward", "self", "Gradient of gelu.", {{"approximate", "none"}}, infer_gelu),
      backward("silu_backward", "self", "Gradient of silu."),
      backward("sigmoid_backward", "output", "Gradient of sigmoid by its result."),
      backward("tanh_backward", "output", "Gradient of tanh by its result."),
      backward("elu_backward", "self_or_result", "Gradient of elu by its operand, or with "
               "`is_result` by its result.",
               {{"alpha", 1.0, true}, {"scale", 1.0, true}, {"input_scale", 1.0, true},
                {"is_result", false, true}}),
      backward("leaky_relu_backward", "self", "Gradient of leaky_relu by its operand; its result "
               "serves as well when the slope is positive.",
               {{"negative_slope", 0.01, true}, {"self_is_result", false, true}}),
      backward("hardtanh_backward", "self", "Gradient of hardtanh.",
               {{"min_val", -1.0, true}, {"max_val", 1.0, true}}),
      backward("hardsigmoid_backward", "self", "Gradient of hardsigmoid."),
      backward("hardswish_backward", "self", "Gradient of hardswish."),
      backward("mish_backward", "self", "Gradient of mish."),
      backward("softplus_backward", "self", "Gradient of softplus.",
               {{"beta", 1.0, true}, {"threshold", 20.0, true}}),
  };
}

std::vector<OpDef> binary_rows() {
  constexpr Infer number = keeps<Kind::number>, any = keeps<Kind::any>;
  constexpr Infer logical = keeps<Kind::logical>, test = tests<Kind::any>;
  OpDef pow = binary("pow", ".Tensor_Tensor", "self to the power of exponent. Of integers a "
                     "negative power is truncated.", number);
  pow.operands = {"self", "exponent"};
  return {
      binary("add", ".Tensor", "self + alpha other; of bools, their or.", any, {{"alpha", 1.0}}),
      binary("sub", ".Tensor", "self - alpha other.", number, {{"alpha", 1.0}}),
      binary("mul", ".Tensor", "self times other; of bools, their and.", any),
      binary("div", ".Tensor_mode", "self / other; with rounding_mode \"floor\" or \"trunc\" the "
             "quotient is whole. A whole divisor of 0 is an error.", infer_div,
             {{"rounding_mode", {}}}),
      std::move(pow),
      binary("minimum", "", "The smaller one; NaN when one is NaN.", any),
      binary("maximum", "", "The larger one; NaN when one is NaN.", any),
      binary("fmod", ".Tensor", "The rest of the division, with the sign of self.", number),
      binary("remainder", ".Tensor", "The rest of the division, with the sign of other.", number),
      binary("atan2", "", "The angle of the point (other, self).", keeps<Kind::real>),
      binary("bitwise_and", ".Tensor", "The and of each bit.", logical),
      binary("bitwise_or", ".Tensor", "The or of each bit.", logical),
      binary("bitwise_xor", ".Tensor", "The exclusive or of each bit.", logical),
      binary("logical_and", "", "Whether both are other than 0.", test),
      binary("logical_or", "", "Whether one is other than 0.", test),
      binary("logical_xor", "", "Whether exactly one is other than 0.", test),
      binary("eq", ".Tensor", "Whether the operands are equal.", test),
      binary("ne", ".Tensor", "Whether the operands differ.", test),
      binary("lt", ".Tensor", "Whether self < other.", test),
      binary("le", ".Tensor", "Whether self <= other.", test),
      binary("gt", ".Tensor", "Whether self > other.", test),
      binary("ge", ".Tensor", "Whether self >= other.", test),
  };
}

std::vector<OpDef> moving_rows() {
  return {
      {.name = "where",
       .aten = {"aten::where.self"},
       .doc = "self where the condition holds, else other.",
       .operands = {"condition", "self", "other"},
       .infer = infer_where,
       .flops = none,
       .strided = Strided::all,
       .inplace = {{1, 2}},
       .elementwise = true},
      {.name = "masked_fill",
       .aten = {"aten::masked_fill.Tensor"},
       .doc = "self, and `value` (one number) where the mask holds.",
       .operands = {"self", "mask", "value"},
       .infer = infer_masked_fill,
       .flops = none,
       .strided = Strided::all,
       .inplace = {{0}},
       .elementwise = true},
      {.name = "cast",
       .doc = "x in another dtype: floats rounded to nearest even, whole numbers wrapped around, "
              "floats cut to whole numbers, anything but 0 true.",
       .operands = {"x"},
       .attrs = {{"dtype", DType::f32, true}},
       .infer = infer_cast,
       .flops = none,
       .strided = Strided::all,
       .elementwise = true},
      {.name = "narrowing_cast",
       .doc = "x of i64 in i32; an error where a number does not fit. The limits of i64 become "
              "those of i32.",
       .operands = {"x"},
       .infer = infer_narrowing_cast,
       .flops = none},
      {.name = "clone",
       .aten = {"aten::clone"},
       .doc = "A row-major copy of x.",
       .operands = {"self"},
       .infer = same_as_first,
       .flops = none,
       .strided = Strided::all,
       .inplace = {{0}}},
      {.name = "full",
       .aten = {"aten::full"},
       .doc = "A tensor of one value.",
       .attrs = {{"size", ir::AttrList{}, true},
                 {"dtype", DType::f32, true},
                 {"fill_value", {}, true}},
       .infer = infer_full,
       .flops = none},
      {.name = "arange",
       .aten = {"aten::arange.start_step"},
       .doc = "start, start + step, ... up to, and without, end.",
       .attrs = {{"start", 0.0},
                 {"end", 0.0, true},
                 {"step", 1.0},
                 {"dtype", DType::f32, true}},
       .infer = infer_arange,
       .flops = none},
  };
}

}  // namespace

std::vector<OpDef> elementwise_ops() {
  return joined({plain_unary_rows(), activation_rows(), backward_rows(), binary_rows(),
                 moving_rows()});
}

}  // namespace poptorch::ops
