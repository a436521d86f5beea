// Kernels of the element-wise rows: a function by name and dtype, run over a loop.
#include "kernels/elementwise/elementwise.h"

#include <cstring>
#include <limits>
#include <string>

#include "kernels/loop.h"
#include "kernels/simd/elementwise.h"
#include "ops/kernel.h"
#include "support/error.h"
#include "support/loading/not_linked.h"

namespace poptorch::kernels {

namespace {

using Params = decltype(Function::params);

// The function that an op with these attributes is, where the op's name alone does not say it.
std::string name_of_function(const Call& call) {
  const ir::OpName name = call.op.name;
  const ir::Attrs& attrs = call.attrs();
  if (name == ir::op::add || name == ir::op::sub) {
    return attrs.get_float(ir::attr::alpha) == 1.0 ? name.str() : name.str() + "_scaled";
  }
  if (name == ir::op::gelu || name == ir::op::gelu_backward) {
    return attrs.get_string(ir::attr::approximate) == "tanh" ? name.str() + "_tanh" : name.str();
  }
  if (name == ir::op::div && !attrs.find(ir::attr::rounding_mode)->is_none()) {
    return "div_" + attrs.get_string(ir::attr::rounding_mode);
  }
  if (name == ir::op::elu_backward && attrs.get_bool(ir::attr::is_result)) {
    return "elu_backward_result";
  }
  return name.str();
}

// The op's numeric attributes in the order of its row.
Params params_of(const Call& call) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Params params{};
  if (call.op.name == ir::op::clamp) {
    return {call.attrs().maybe_float(ir::attr::min).value_or(-infinity),
            call.attrs().maybe_float(ir::attr::max).value_or(infinity)};
  }
  size_t count = 0;
  for (const ops::AttrDef& attr : ops::op_def(call.op.name).attrs) {
    if (!std::holds_alternative<double>(attr.default_value.value)) continue;
    INTERNAL_CHECK(count < params.size(), "op ", call.op.name, " has too many numbers");
    params[count++] = call.attrs().get_float(attr.name);
  }
  return params;
}

// The function of one or two operands for operands of `dtype`; for the 16-bit floats that of f32,
// for loops with Float16Form::upcast. nullptr: there is none.
const simd::NamedLoop* find_function(ir::DType dtype, size_t operands, std::string_view name) {
  if (dtype == ir::DType::f32 || ir::is_half(dtype)) {
    return operands == 1 ? simd::unary_f32(name) : simd::binary_f32(name);
  }
  const std::string_view kind = dtype == ir::DType::f64 ? "f64" : "integer";
  note_need("functions.", kind);
  for (const FunctionTables& known : function_tables()) {
    if (known.kind != kind) continue;
    return simd::find(operands == 1 ? known.unary(dtype) : known.binary(dtype), name);
  }
  return nullptr;
}

const simd::NamedLoop& loop_of(const Call& call, ir::DType dtype, size_t operands,
                               std::string_view function) {
  const simd::NamedLoop* loop = find_function(dtype, operands, function);
  if (loop == nullptr) check_is_linked("function ", function);
  USER_CHECK(loop != nullptr, "[", call.op.name, "] is not computed for ", call.in(0).text(),
             ". Cast the operands to a floating-point type.");
  return *loop;
}

Function function_of_loop(const Call& call, const simd::NamedLoop& loop, int operands) {
  return {.run = loop.run,
          .params = params_of(call),
          .picoseconds = loop.picoseconds,
          .operand_count = operands,
          .rounds = loop.rounds};
}

Function unary(const Call& call) {
  return function_of_loop(call, loop_of(call, call.in(0).dtype, 1, name_of_function(call)), 1);
}

Function binary(const Call& call) {
  return function_of_loop(call, loop_of(call, call.in(0).dtype, 2, name_of_function(call)), 2);
}

// Common exponents are known only when the exponent is read.
struct Powers {
  simd::InnerLoopFn square, cube, reciprocal, any;

  simd::InnerLoopFn by(double exponent) const {
    if (exponent == 2.0) return square;
    if (exponent == 3.0) return cube;
    if (exponent == -1.0) return reciprocal;
    return any;
  }
};
static_assert(sizeof(Powers) <= sizeof(Params));

template <typename T>
void power_loop(const simd::InnerLoop& s) {
  Powers powers;
  std::memcpy(&powers, s.params, sizeof powers);
  powers.by(static_cast<double>(*static_cast<const T*>(s.in[1])))(s);
}

Function power(const Call& call) {
  Function function = binary(call);
  const ir::DType dtype = call.in(0).dtype;
  if (!ir::is_float(dtype) || call.in(1).numel() != 1) return function;
  const auto loop = [&](const char* name) { return loop_of(call, dtype, 1, name).run; };
  const Powers powers = {loop("square"), loop("cube"), loop("reciprocal"), function.run};
  std::memcpy(function.params.data(), &powers, sizeof powers);
  function.picoseconds = 2000;
  function.run = dtype == ir::DType::f64 ? power_loop<double> : power_loop<float>;
  return function;
}

Prepared elementwise(const Call& call) {
  const Function function = function_of(call);
  std::vector<const ir::Type*> operands;
  for (int i = 0; i < function.operand_count; ++i) {
    operands.push_back(&call.in(function.operands[static_cast<size_t>(i)]));
  }
  const ir::OpName name = call.op.name;
  const bool moves = name == ir::op::where || name == ir::op::masked_fill ||
                     name == ir::op::cast;
  const Loop loop(call.out(), operands, moves ? Float16Form::bits : Float16Form::upcast);
  return {[loop, function](const Args& args) {
    std::array<const void*, 3> in{};
    for (int i = 0; i < function.operand_count; ++i) {
      const auto slot = static_cast<size_t>(i);
      in[slot] = args.inputs[function.operands[slot]];
    }
    loop.run({function.run, function.params.data(), grain_of(function.picoseconds)}, in,
             args.outputs[0], args.threads);
  }};
}

// div, fmod and remainder of whole numbers: a divisor of 0 is the user's error.
Prepared division(const Call& call) {
  Prepared prepared = elementwise(call);
  if (ir::is_float(call.in(0).dtype) || call.out().numel() == 0) return prepared;
  const ir::Type& y = call.in(1);
  const simd::NamedLoop& is_zero = loop_of(call, y.dtype, 1, "logical_not");
  const Loop loop({ir::DType::boolean, y.sizes, {}}, {&y});
  const std::string words = concat("[", call.op.name, "] integer division by zero: operand 1, ",
                                   y.text(), ", holds a 0. Divide as floats, or replace it.");
  const auto run = [=, divide = std::move(prepared.run)](const Args& args) {
    loop.run({is_zero.run, nullptr, grain_of(is_zero.picoseconds)},
             {args.inputs[1], nullptr, nullptr}, args.scratch, args.threads);
    const auto n = static_cast<size_t>(loop.numel());
    if (std::memchr(args.scratch, 1, n) != nullptr) throw_user_error(words);
    divide(args);
  };
  return {run, static_cast<size_t>(y.numel())};
}

Prepared clone(const Call& call) {
  const Loop loop(call.out(), {&call.in(0)});
  const simd::InnerLoopFn run = copy_loop(ir::item_bytes(call.out().dtype));
  return {[=](const Args& args) {
    if (args.inputs[0] == args.outputs[0]) return;
    loop.run({run, nullptr, grain_of(200)}, {args.inputs[0], nullptr, nullptr}, args.outputs[0],
             args.threads);
  }};
}

// Rows of one function each.
#define PLAIN(name) KERNEL(name, elementwise, true)
PLAIN("neg") PLAIN("abs") PLAIN("sign") PLAIN("exp") PLAIN("exp2") PLAIN("expm1") PLAIN("log")
PLAIN("log2") PLAIN("log10") PLAIN("log1p") PLAIN("sqrt") PLAIN("rsqrt") PLAIN("reciprocal")
PLAIN("sin") PLAIN("cos") PLAIN("tan") PLAIN("asin") PLAIN("acos") PLAIN("atan") PLAIN("sinh")
PLAIN("cosh") PLAIN("asinh") PLAIN("acosh") PLAIN("atanh") PLAIN("tanh") PLAIN("sigmoid")
PLAIN("erf") PLAIN("erfc") PLAIN("relu") PLAIN("floor") PLAIN("ceil") PLAIN("round") PLAIN("trunc")
PLAIN("frac") PLAIN("bitwise_not") PLAIN("logical_not") PLAIN("isnan") PLAIN("isinf")
PLAIN("isfinite") PLAIN("gelu") PLAIN("silu") PLAIN("mish") PLAIN("softplus") PLAIN("elu")
PLAIN("leaky_relu") PLAIN("hardtanh") PLAIN("hardsigmoid") PLAIN("hardswish") PLAIN("threshold")
PLAIN("clamp") PLAIN("add") PLAIN("sub") PLAIN("mul") PLAIN("minimum") PLAIN("maximum")
PLAIN("atan2") PLAIN("bitwise_and") PLAIN("bitwise_or") PLAIN("bitwise_xor") PLAIN("logical_and")
PLAIN("logical_or") PLAIN("logical_xor") PLAIN("eq") PLAIN("ne") PLAIN("lt") PLAIN("le") PLAIN("gt")
PLAIN("ge") PLAIN("threshold_backward") PLAIN("gelu_backward") PLAIN("silu_backward")
PLAIN("sigmoid_backward") PLAIN("tanh_backward") PLAIN("elu_backward") PLAIN("leaky_relu_backward")
PLAIN("hardtanh_backward") PLAIN("hardsigmoid_backward") PLAIN("hardswish_backward")
PLAIN("mish_backward") PLAIN("softplus_backward")
#undef PLAIN

KERNEL("div", division, true)
KERNEL("fmod", division, true)
KERNEL("remainder", division, true)
KERNEL("pow", elementwise, true)
KERNEL("where", elementwise, true)
KERNEL("masked_fill", elementwise, true)
KERNEL("cast", elementwise, true)
KERNEL("clone", clone, true)
KERNEL("nop", clone, true)

}  // namespace

std::vector<FunctionTables>& function_tables() {
  static std::vector<FunctionTables> tables;
  return tables;
}

Function function_of(const Call& call) {
  const ir::OpName name = call.op.name;
  const auto select = [&] { return where_loop(ir::item_bytes(call.out().dtype)); };
  if (name == ir::op::where) return {select(), {}, 100, 3};
  if (name == ir::op::masked_fill) return {select(), {}, 100, 3, {1, 2, 0}};
  if (name == ir::op::cast) return cast_function(call.in(0).dtype, call.out().dtype);
  if (name == ir::op::pow) return power(call);
  return call.in_count() == 1 ? unary(call) : binary(call);
}

}  // namespace poptorch::kernels
