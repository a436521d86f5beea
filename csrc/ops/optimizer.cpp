// The weight update: one op reads parameter, gradient and state, and makes their new values.
// Hyper-parameters are a vector that is streamed in, so that a new learning rate compiles nothing.
#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

using ir::Type;

void expect_like_first(const InferInput& in, size_t operand) {
  const Type &first = in.operand(0), &other = in.operand(operand);
  USER_CHECK(first.dtype == other.dtype && first.sizes == other.sizes, "[", in.op.name,
             "] operands differ: ", first.text(), " and operand ", operand, " is ", other.text(),
             ". Make them equal.");
}

void expect_hyper(const InferInput& in, size_t operand, int64_t count) {
  USER_CHECK(in.operand(operand).sizes == ir::Dims{count}, "[", in.op.name, "] hyper must hold ",
             count, " numbers, got ", in.operand(operand).text(), ".");
}

std::vector<Type> infer_accumulate(const InferInput& in) {
  expect_like_first(in, 1);
  return {in.operand(0)};
}

std::vector<Type> infer_sgd(const InferInput& in) {
  expect_like_first(in, 1);
  expect_hyper(in, 4, 4);
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
  std::vector<Type> types = {in.operand(0), in.operand(2), in.operand(3)};
  USER_CHECK(in.has(4) == in.attrs().get_bool("amsgrad", false),
             "[adam_update] max_exp_avg_sq must be given exactly with amsgrad=true.");
  if (in.has(4)) {
    expect_like_first(in, 4);
    types.push_back(in.operand(4));
  }
  return types;
}

}  // namespace

std::vector<OpDef> optimizer_ops() {
  return {
      {.name = "accumulate",
       .doc = "acc + scale * grad: adds up the gradients of micro-batches.",
       .operands = {"acc", "grad"},
       .attrs = {{"scale", 1.0}},
       .infer = infer_accumulate,
       .inplace = {{0}}},
      {.name = "sgd_update",
       .doc = "torch.optim.SGD. `hyper` holds lr, momentum, dampening, weight_decay. `step` counts "
              "from 1: the first step takes the gradient as momentum, undamped.",
       .operands = {"param", "grad", "momentum_buffer?", "step", "hyper"},
       .results = {"param", "momentum_buffer*"},
       .attrs = {{"nesterov", false}, {"maximize", false}},
       .infer = infer_sgd,
       .inplace = {{0}, {2}}},
      {.name = "adam_update",
       .doc = "torch.optim.Adam, with decoupled_weight_decay AdamW. `hyper` holds lr, beta1, "
              "beta2, eps, weight_decay. `step` counts from 1.",
       .operands = {"param", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq?", "step", "hyper"},
       .results = {"param", "exp_avg", "exp_avg_sq", "max_exp_avg_sq*"},
       .attrs = {{"amsgrad", false}, {"maximize", false}, {"decoupled_weight_decay", false}},
       .infer = infer_adam,
       .inplace = {{0}, {2}, {3}, {4}}},
  };
}

}  // namespace poptorch::ops
