// The weight update: one op reads parameter, gradient and state, and makes their new values.
// Hyper-parameters are a vector that is streamed in, so that a new learning rate compiles nothing.
// Parameter, gradient and states have a type each: updates compute in f32 (f64 where all are f64)
// and round once. `grad_scale` multiplies the gradient before everything else; where `skip` is
// true, parameter and states stay as they are.
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

// Of the first operand's sizes and of any floating type, but for f64, which stands by itself.
void expect_like_first(const InferInput& in, size_t operand) {
  const Type &first = in.operand(0), &other = in.operand(operand);
  const bool is_mixable = is_float(first.dtype) && is_float(other.dtype) &&
                          (first.dtype == ir::DType::f64) == (other.dtype == ir::DType::f64);
  USER_CHECK((first.dtype == other.dtype || is_mixable) && first.sizes == other.sizes, "[",
             in.op.name, "] operands differ: ", first.text(), " and operand ", operand, " is ",
             other.text(), ". Make their sizes equal; types may be any of f16, bf16 and f32, or "
             "all f64.");
}

void expect_number(const InferInput& in, size_t operand, bool is_truth) {
  if (!in.has(operand)) return;
  const Type& type = in.operand(operand);
  USER_CHECK(type.sizes.empty() &&
                 (is_truth ? type.dtype == ir::DType::boolean : is_float(type.dtype)),
             "[", in.op.name, "] operand ", operand, " must be one ",
             is_truth ? "bool" : "number of floating point", ", got ", type.text(), ".");
}

// The last two operands of an update.
void expect_factor(const InferInput& in, size_t grad_scale) {
  expect_number(in, grad_scale, false);
  expect_number(in, grad_scale + 1, true);
}

void expect_hyper(const InferInput& in, size_t operand, int64_t count) {
  USER_CHECK(in.operand(operand).sizes == ir::Dims{count}, "[", in.op.name, "] hyper must hold ",
             count, " numbers, got ", in.operand(operand).text(), ".");
}

std::vector<Type> infer_accumulate(const InferInput& in) {
  expect_like_first(in, 1);
  expect_number(in, 2, false);
  return {in.operand(0)};
}

std::vector<Type> infer_sgd(const InferInput& in) {
  expect_like_first(in, 1);
  expect_hyper(in, 4, 4);
  expect_factor(in, 5);
  std::vector<Type> types = {in.operand(0)};
  if (in.has(2)) {
    expect_like_first(in, 2);
    types.push_back(in.operand(2));
  }
  return types;
}

std::vector<Type> infer_adam(const InferInput& in) {
  for (size_t i : {1, 2, 3}) expect_like_first(in, i);
  expect_hyper(in, 6, 5);
  expect_factor(in, 7);
  std::vector<Type> types = {in.operand(0), in.operand(2), in.operand(3)};
  USER_CHECK(in.has(4) == in.attrs().get_bool(ir::attr::amsgrad, false),
             "[adam_update] max_exp_avg_sq must be given exactly with amsgrad=true.");
  if (in.has(4)) {
    expect_like_first(in, 4);
    types.push_back(in.operand(4));
  }
  return types;
}

// Each element: times the scale, plus; and times the factor.
double accumulate_flops(const WorkInput& in) { return numel(in.operand(0)) * (2 + in.has(2)); }

// Each element: weight decay and the step, two each; momentum three, by Nesterov two more; and
// times `grad_scale`. What `hyper` holds is not known here: a factor of 0 counts like any other.
double sgd_flops(const WorkInput& in) {
  const double momentum = in.has(2) ? 3 + 2 * in.attrs().get_bool(ir::attr::nesterov) : 0;
  return numel(in.operand(0)) * (4 + momentum + in.has(5));
}

// Each element: weight decay two, the means three and four, root, bias correction and eps three,
// the step three; the largest mean one, and times `grad_scale`.
double adam_flops(const WorkInput& in) {
  return numel(in.operand(0)) * (15 + in.has(4) + in.has(7));
}

}  // namespace

std::vector<OpDef> optimizer_ops() {
  return {
      {.name = "accumulate",
       .doc = "acc + scale * factor * grad: adds up the gradients of micro-batches.",
       .operands = {"acc", "grad", "factor?"},
       .attrs = {{"scale", 1.0}},
       .infer = infer_accumulate,
       .flops = accumulate_flops,
       .inplace = {{0}}},
      {.name = "sgd_update",
       .doc = "torch.optim.SGD. `hyper` holds lr, momentum, dampening, weight_decay. `step` counts "
              "from 1: the first step takes the gradient as momentum, undamped.",
       .operands = {"param", "grad", "momentum_buffer?", "step", "hyper", "grad_scale?", "skip?"},
       .results = {"param", "momentum_buffer*"},
       .attrs = {{"nesterov", false}, {"maximize", false}},
       .infer = infer_sgd,
       .flops = sgd_flops,
       .inplace = {{0}, {2}}},
      {.name = "adam_update",
       .doc = "torch.optim.Adam, with decoupled_weight_decay AdamW. `hyper` holds lr, beta1, "
              "beta2, eps, weight_decay. `step` counts from 1.",
       .operands = {"param", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq?", "step", "hyper",
                    "grad_scale?", "skip?"},
       .results = {"param", "exp_avg", "exp_avg_sq", "max_exp_avg_sq*"},
       .attrs = {{"amsgrad", false},
                 {"maximize", false},
                 {"decoupled_weight_decay", false},
                 {"bias_correction", true}},
       .infer = infer_adam,
       .flops = adam_flops,
       .inplace = {{0}, {2}, {3}, {4}}},
  };
}

}  // namespace poptorch::ops
