// Ops that compute each element by itself, random numbers, and updates of weights. Cycles are those
// of the vendor's vertices for a vector of 8 bytes; there is no published measurement to check them
// by: 30 %.
#include <algorithm>
#include <map>
#include <string_view>

#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

struct Cycles {
  double f32;  // two elements
  double f16;  // four elements
};

const std::map<std::string_view, Cycles>& float_cycles() {
  static const std::map<std::string_view, Cycles> table = {
      {"add", {3, 3}},        {"sub", {3, 3}},          {"mul", {3, 3}},
      {"div", {6, 8}},        {"maximum", {3, 3}},      {"minimum", {3, 3}},
      {"relu", {3, 3}},       {"neg", {2, 2}},          {"abs", {2, 2}},
      {"exp", {6, 4}},        {"exp2", {8, 6}},         {"expm1", {8, 6}},
      {"log", {12, 4}},       {"log2", {14, 6}},        {"log10", {14, 6}},
      {"log1p", {14, 6}},     {"tanh", {12, 4}},        {"sigmoid", {12, 6}},
      {"sqrt", {10, 23}},     {"rsqrt", {8, 19}},       {"reciprocal", {6, 15}},
      {"gelu", {10, 5}},      {"silu", {11, 5}},        {"erf", {82, 52}},
      {"erfc", {84, 56}},     {"mish", {30, 20}},       {"softplus", {50, 36}},
      {"sin", {4600, 100}},   {"cos", {4600, 100}},     {"tan", {4600, 100}},
      {"asin", {100, 100}},   {"acos", {100, 100}},     {"atan", {100, 100}},
      {"atan2", {120, 120}},  {"sinh", {20, 16}},       {"cosh", {20, 16}},
      {"asinh", {40, 40}},    {"acosh", {40, 40}},      {"atanh", {40, 40}},
      {"pow", {40, 40}},      {"fmod", {40, 40}},       {"remainder", {40, 40}},
      {"relu_backward", {3, 3}}, {"threshold_backward", {3, 3}},
      {"sigmoid_backward", {3, 3}}, {"tanh_backward", {3, 3}},
      {"gelu_backward", {20, 10}}, {"silu_backward", {22, 10}},
      {"mish_backward", {40, 30}}, {"softplus_backward", {20, 14}},
      {"where", {4, 4}},      {"masked_fill", {3, 3}},  {"clamp", {4, 4}}};
  return table;
}

// Of one vector of the widest type that takes part.
double cycles_of(std::string_view name, ir::DType dtype) {
  if (dtype == ir::DType::boolean || !ir::is_float(dtype)) {
    const bool divides = name == "div" || name == "fmod" || name == "remainder";
    return divides ? 554 : 13;
  }
  const auto found = float_cycles().find(name);
  if (found == float_cycles().end()) return 5;
  return ir::item_bytes(dtype) >= 4 ? found->second.f32 : found->second.f16;
}

ir::DType widest(const Call& call) {
  ir::DType dtype = call.result().dtype;
  for (size_t i = 0; i < call.count(); ++i) {
    if (!call.has(i)) continue;
    const ir::DType other = call.operand(i).dtype;
    if (ir::is_float(other) && ir::item_bytes(other) >= ir::item_bytes(dtype)) dtype = other;
  }
  return dtype;
}

// `cycles` a vector for each element of the first result.
template <int f32, int f16>
Cost by_result(const Call& call) {
  Steps steps(call);
  const ir::Type& out = call.result();
  const int64_t item = ir::item_bytes(out.dtype);
  steps.add_elementwise(call.share(out), item, item >= 4 ? f32 : f16);
  return steps.cost;
}

// Two types: the vectors are those of the wider one.
Cost cast_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& out = call.result();
  const int64_t item =
      std::max(ir::item_bytes(out.dtype), ir::item_bytes(call.operand(0).dtype));
  const double vectors = call.share(out) * static_cast<double>(item) / 8;
  steps.add(12 + workers_cycles(vectors, 2, call.target, 37));
  return steps.cost;
}

// A scaled add for each state, and the functions that Adam computes as well.
template <int scaled_adds, int functions>
Cost update_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& parameter = call.operand(0);
  const double elements = call.share(parameter);
  const int64_t item = ir::item_bytes(parameter.dtype);
  steps.add_elementwise(elements, item, 3, scaled_adds);
  if (functions > 0) steps.add_elementwise(elements, 4, 10, functions);
  return steps.cost;
}

Cost sgd_cost(const Call& call) {
  return call.has(2) ? update_cost<2, 0>(call) : update_cost<1, 0>(call);
}

}  // namespace

Cost elementwise_cost(const Call& call) {
  Steps steps(call);
  const ir::DType dtype = widest(call);
  steps.add_elementwise(call.share(ops::numel(call.result()), ir::item_bytes(dtype)),
                        ir::item_bytes(dtype), cycles_of(call.op.name.text(), dtype));
  return steps.cost;
}

std::vector<CostRow> elementwise_costs() {
  return {{"cast", cast_cost},
          {"narrowing_cast", cast_cost},
          {"stochastic_cast", cast_cost},
          {"accumulate", by_result<2, 2>},
          {"dropout", by_result<6, 4>},
          {"bernoulli", by_result<6, 4>},
          {"random_uniform", by_result<4, 4>},
          {"random_normal", by_result<12, 12>},
          {"random_exponential", by_result<16, 12>},
          {"random_int", by_result<8, 8>},
          {"full", by_result<1, 1>},
          {"arange", by_result<2, 2>},
          {"tril", by_result<2, 2>},
          {"triu", by_result<2, 2>},
          {"sgd_update", sgd_cost},
          {"adam_update", update_cost<3, 2>}};
}

}  // namespace poptorch::device
