#include "assemble/float_checks.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "ops/op_def.h"

namespace poptorch::assemble {

namespace {

using Family = FloatCheck::Family;

constexpr std::pair<std::string_view, Family> families[] = {
    {"accumulate", Family::sum},
    {"acos", Family::real_only},
    {"acosh", Family::real_only},
    {"add", Family::sum},
    {"addmm", Family::product_sum},
    {"asin", Family::real_only},
    {"aten::erfinv", Family::real_only},
    {"aten::lgamma", Family::real_only},
    {"aten::logit", Family::real_only},
    {"atanh", Family::real_only},
    {"attention", Family::product_sum},
    {"baddbmm", Family::product_sum},
    {"convolution", Family::product_sum},
    {"convolution_backward", Family::product_sum},
    {"cumprod", Family::product_sum},
    {"div", Family::quotient},
    {"eq", Family::comparison},
    {"fmod", Family::remainder},
    {"ge", Family::comparison},
    {"gt", Family::comparison},
    {"le", Family::comparison},
    {"log", Family::real_only},
    {"log10", Family::real_only},
    {"log1p", Family::real_only},
    {"log2", Family::real_only},
    {"lt", Family::comparison},
    {"matmul", Family::product_sum},
    {"mean", Family::mean},
    {"mse_loss", Family::mean},
    {"mul", Family::product},
    {"ne", Family::comparison},
    {"nll_loss", Family::mean},
    {"pow", Family::real_only},
    {"prod", Family::product_sum},
    {"reciprocal", Family::reciprocal},
    {"remainder", Family::remainder},
    {"rsqrt", Family::reciprocal},
    {"sqrt", Family::real_only},
    {"sub", Family::sum},
    {"var", Family::mean},
};

// Results of ops that hold no values of the model's: notes for the backward pass, in which an
// infinity stands for a row without elements. The number of results that are values.
constexpr std::pair<std::string_view, size_t> values_of[] = {
    {"attention", 1}, {"ctc_loss", 1}, {"gru", 2}, {"lstm", 3}};

template <typename Rows, typename Value>
Value find_in(const Rows& rows, std::string_view name, Value otherwise) {
  for (const auto& [known, value] : rows) {
    if (known == name) return value;
  }
  return otherwise;
}

// Looks through lists, too.
bool has_number(const ir::Attr& attr, const auto& fn) {
  if (const auto* number = std::get_if<double>(&attr.value)) return fn(*number);
  const auto* list = std::get_if<ir::AttrList>(&attr.value);
  return list != nullptr && std::any_of(list->begin(), list->end(),
                                        [&](const ir::Attr& item) { return has_number(item, fn); });
}

bool has_number(const ir::Op& op, const auto& fn) {
  return std::any_of(op.attrs.begin(), op.attrs.end(),
                     [&](const auto& item) { return has_number(item.second, fn); });
}

// In the names of operators of torch whose results have no meaning.
constexpr std::string_view uninitialized = "empty";

// Whether each element of the result belongs to one of each operand.
bool goes_element_by_element(const ir::Op& op) {
  const int64_t rank = op.result()->type.rank();
  return std::all_of(op.operands.begin(), op.operands.end(), [&](const ir::Value* operand) {
    return operand != nullptr && operand->type.rank() <= rank;
  });
}

}  // namespace

FloatCheck float_check_of(const ir::Op& op, const std::string& name, const Uses& uses) {
  const ops::OpDef& row = ops::op_def(op.name);
  FloatCheck check;
  check.op = name;
  check.family = find_in(families, name, Family::other);
  check.is_elementwise = row.elementwise && !row.random && goes_element_by_element(op);
  check.is_root = name == "rsqrt";
  check.may_make_inf = has_number(op, [](double x) { return !std::isfinite(x); });
  check.may_make_nan = has_number(op, [](double x) { return std::isnan(x); });
  const ir::Value* first = op.operand(0);
  const bool is_real = first != nullptr && ir::is_float(first->type.dtype);
  // `x != x` is true for NaN.
  const bool is_nan_test = check.family == Family::comparison && first == op.operand(1);
  if (!is_real || is_nan_test) check.family = Family::other;
  for (size_t i = 0; i < ops::operand_slots(op); ++i) {
    const ir::Value* operand = op.operand(i);
    const bool is_seen = operand != nullptr && (i >= row.operands.size() ||
                                                row.operands[i] != "hyper");
    check.operands.push_back(is_seen ? std::optional(operand->type) : std::nullopt);
  }
  const size_t values = find_in(values_of, name, op.results.size());
  const bool has_operands = !op.operands.empty() && name.find(uninitialized) == name.npos;
  for (size_t i = 0; i < op.results.size(); ++i) {
    const ir::Type& type = op.result(i)->type;
    const auto used = uses.find(op.result(i));
    check.results.push_back(type);
    check.is_checked.push_back(has_operands && i < values && ir::is_float(type.dtype) &&
                               type.numel() > 0 && used != uses.end() && used->second > 0);
  }
  return check;
}

}  // namespace poptorch::assemble
