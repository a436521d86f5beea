#include "run/floats/float_check.h"

#include <atomic>
#include <cmath>
#include <vector>

#include "run/floats/float_values.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::run {

namespace {

using assemble::FloatCheck;
using Family = FloatCheck::Family;

constexpr int64_t grain = int64_t{1} << 16;

// Whether some element of a tensor is NaN, infinite, or zero.
struct Seen {
  bool has_nan = false;
  bool has_inf = false;
  bool has_zero = false;

  bool is_finite() const { return !has_nan && !has_inf; }
  void add(const Seen& other) {
    has_nan |= other.has_nan;
    has_inf |= other.has_inf;
    has_zero |= other.has_zero;
  }
};

template <typename E>
Seen see_part(const void* data, int64_t begin, int64_t end) {
  const auto* at = static_cast<const typename E::Stored*>(data);
  int nan = 0, inf = 0, zero = 0;
  for (int64_t i = begin; i < end; ++i) {
    const auto bits = at[i] & E::magnitude;
    nan |= bits > E::infinity;
    inf |= bits == E::infinity;
    zero |= bits == 0;
  }
  return {nan != 0, inf != 0, zero != 0};
}

// All memory from the first to the last element: a view with gaps may see what is between, so that
// only `false` is an answer for it.
Seen see(const ir::Type& type, const void* data, int threads) {
  std::atomic<bool> nan = false, inf = false, zero = false;
  parallel_for(threads, type.span(), grain, [&](int64_t begin, int64_t end) {
    const Seen part = with_float(type.dtype, [&](auto e) {
      return see_part<decltype(e)>(data, begin, end);
    });
    if (part.has_nan) nan = true;
    if (part.has_inf) inf = true;
    if (part.has_zero) zero = true;
  });
  return {nan, inf, zero};
}

// The same for the elements of a view alone.
Seen see_exactly(const ir::Type& type, const void* data, int threads) {
  const Seen roughly = see(type, data, threads);
  if (type.is_contiguous() || roughly.is_finite()) return roughly;
  Seen seen;
  Elements elements(type, data, type.sizes);
  for (int64_t i = 0; i < type.numel(); ++i, elements.next()) {
    const double value = elements.value();
    seen.add({std::isnan(value), std::isinf(value), value == 0});
  }
  return seen;
}

// One element of an element-wise op.
struct Element {
  std::vector<double> operands;
  std::vector<bool> is_float;
  double result = 0;

  bool has_nan() const { return has([](double x) { return std::isnan(x); }); }
  bool has_inf() const { return has([](double x) { return std::isinf(x); }); }

 private:
  bool has(const auto& fn) const {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (is_float[i] && fn(operands[i])) return true;
    }
    return false;
  }
};

constexpr const char* by_zero = "division by zero";
constexpr const char* by_infinity = "division by infinity";
constexpr const char* infinities = "subtraction of infinities";
constexpr const char* zero_times = "multiplication of zero and infinity";
constexpr const char* either = "subtraction of infinities, or multiplication of zero and infinity";
constexpr const char* complex_result = "real operation with a complex result";
constexpr const char* compared = "comparison with NaN";
constexpr const char* overflow = "overflow, an infinite result of finite operands";
constexpr const char* of_infinity = "NaN, a result of an infinite operand";
constexpr const char* of_finite = "NaN, a result of finite operands";

const char* nan_condition(Family family, const Element& element) {
  switch (family) {
    case Family::sum: return infinities;
    case Family::product: return zero_times;
    case Family::remainder: return element.operands[1] == 0 ? by_zero : of_infinity;
    case Family::real_only: return complex_result;
    default: return element.has_inf() ? of_infinity : of_finite;
  }
}

const char* inf_condition(Family family, const Element& element) {
  const double x = std::abs(element.operands[0]);
  const bool is_pole = family == Family::real_only && (x == 0 || x == 1);
  return is_pole ? by_zero : overflow;
}

// nullptr: no exception.
const char* condition_of(const FloatCheck& check, const Element& element) {
  switch (check.family) {
    case Family::comparison: return element.has_nan() ? compared : nullptr;
    case Family::quotient:
    case Family::reciprocal: {
      const double divisor = element.operands[check.family == Family::quotient ? 1 : 0];
      if (divisor == 0) return by_zero;
      if (std::isinf(divisor)) return divisor < 0 && check.is_root ? complex_result : by_infinity;
      if (divisor < 0 && check.is_root) return complex_result;
      break;
    }
    default: break;
  }
  if (element.has_nan()) return nullptr;
  if (std::isnan(element.result)) {
    return check.may_make_nan ? nullptr : nan_condition(check.family, element);
  }
  if (!std::isinf(element.result) || element.has_inf() || check.may_make_inf) return nullptr;
  return inf_condition(check.family, element);
}

// A NaN has a sign, which means nothing.
std::string number_text(double value) { return std::isnan(value) ? "nan" : concat(value); }

// `[1, 0] of f32[2,3]`
std::string position_text(const ir::Type& type, int64_t number) {
  std::string text;
  for (int64_t dim = type.rank() - 1; dim >= 0; --dim) {
    const int64_t size = type.sizes[static_cast<size_t>(dim)];
    text = concat(number % size, text.empty() ? "" : ", ", text);
    number /= size;
  }
  return concat("[", text, "] of ", ir::Type{type.dtype, type.sizes, {}}.text());
}

std::string operands_text(const Element& element) {
  const std::vector<double>& values = element.operands;
  std::string text = values.size() == 1 ? "operand " : "operands ";
  for (size_t i = 0; i < values.size(); ++i) {
    text += concat(i == 0 ? "" : i + 1 == values.size() ? " and " : ", ",
                   number_text(values[i]));
  }
  return text;
}

// What could be found without a look at the single elements.
bool is_worth_a_look(const FloatCheck& check, void* const* pointers, int threads) {
  const auto operand = [&](size_t i) {
    const ir::Type& type = *check.operands[i];
    return ir::is_float(type.dtype) ? see(type, pointers[i], threads) : Seen();
  };
  switch (check.family) {
    case Family::comparison:
      for (size_t i = 0; i < check.operands.size(); ++i) {
        if (operand(i).has_nan) return true;
      }
      return false;
    case Family::quotient:
    case Family::reciprocal: {
      const Seen divisor = operand(check.family == Family::quotient ? 1 : 0);
      if (divisor.has_zero || divisor.has_inf) return true;
      break;
    }
    default: break;
  }
  if (!check.is_checked[0]) return false;
  return !see(check.results[0], pointers[check.operands.size()], threads).is_finite();
}

std::optional<FloatFinding> find_in_elements(const FloatCheck& check, void* const* pointers,
                                             int threads) {
  if (!is_worth_a_look(check, pointers, threads)) return std::nullopt;
  const ir::Type& type = check.results[0];
  std::vector<Elements> operands;
  Element element;
  for (size_t i = 0; i < check.operands.size(); ++i) {
    operands.emplace_back(*check.operands[i], pointers[i], type.sizes);
    element.is_float.push_back(ir::is_float(check.operands[i]->dtype));
  }
  element.operands.resize(operands.size());
  Elements result(type, pointers[check.operands.size()], type.sizes);
  for (int64_t number = 0; number < type.numel(); ++number, result.next()) {
    for (size_t i = 0; i < operands.size(); ++i) {
      element.operands[i] = operands[i].value();
      operands[i].next();
    }
    element.result = result.value();
    const char* condition = condition_of(check, element);
    if (condition == nullptr) continue;
    const bool is_new = std::isnan(element.result)
                            ? !element.has_nan()
                            : std::isinf(element.result) && !element.has_inf();
    return FloatFinding{condition,
                        concat("element ", position_text(type, number), ": ",
                               operands_text(element), ", result ", number_text(element.result)),
                        is_new};
  }
  return std::nullopt;
}

std::string first_element(const ir::Type& type, const void* data, bool is_nan) {
  Elements elements(type, data, type.sizes);
  for (int64_t i = 0; i < type.numel(); ++i, elements.next()) {
    const double value = elements.value();
    if (is_nan ? std::isnan(value) : std::isinf(value)) {
      return concat("element ", position_text(type, i), ": result ", number_text(value));
    }
  }
  return "";
}

const char* nan_condition(Family family, const Seen& operands) {
  if (family == Family::real_only) return complex_result;
  if (!operands.has_inf) return family == Family::mean ? by_zero : of_finite;
  return family == Family::product_sum ? either : infinities;
}

std::optional<FloatFinding> find_in_results(const FloatCheck& check, void* const* pointers,
                                            int threads) {
  bool is_known = false;
  Seen operands;
  for (size_t r = 0; r < check.results.size(); ++r) {
    const ir::Type& type = check.results[r];
    const void* data = pointers[check.operands.size() + r];
    if (!check.is_checked[r]) continue;
    const Seen seen = see_exactly(type, data, threads);
    if (seen.is_finite()) continue;
    for (size_t i = 0; !is_known && i < check.operands.size(); ++i) {
      const auto& operand = check.operands[i];
      if (operand && ir::is_float(operand->dtype) && pointers[i] != nullptr) {
        operands.add(see_exactly(*operand, pointers[i], threads));
      }
    }
    is_known = true;
    if (operands.has_nan) return std::nullopt;
    if (seen.has_nan && !check.may_make_nan) {
      return FloatFinding{nan_condition(check.family, operands), first_element(type, data, true)};
    }
    if (seen.has_inf && !operands.has_inf && !check.may_make_inf) {
      return FloatFinding{overflow, first_element(type, data, false)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<FloatFinding> find_exception(const FloatCheck& check, void* const* pointers,
                                           int threads) {
  return check.is_elementwise ? find_in_elements(check, pointers, threads)
                              : find_in_results(check, pointers, threads);
}

std::string kind_of_non_finite(const ir::Type& type, const void* data, int threads) {
  if (!ir::is_float(type.dtype) || type.numel() == 0) return "";
  const Seen seen = see_exactly(type, data, threads);
  return seen.has_nan ? "NaN" : seen.has_inf ? "inf" : "";
}

}  // namespace poptorch::run
