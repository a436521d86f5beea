// Rows of softmax and its logarithm.
#include "ops/checks.h"
#include "ops/work.h"

namespace poptorch::ops {

namespace {

Types infer_softmax(const InferInput& in) {
  expect_float(in, 0);
  wrap_dim(in, in.attrs().get_int(ir::attr::dim), in.operand(0).rank());
  return same_as_first(in);
}

Types infer_backward(const InferInput& in) {
  expect_like(in, 1, 0);
  return infer_softmax(in);
}

const AttrDef dim_attr = {"dim", 0, true};

OpDef forward(std::string name, std::string doc) {
  return {.name = name,
          .aten = {"aten::" + name},
          .doc = std::move(doc),
          .operands = {"self"},
          .attrs = {dim_attr},
          .infer = infer_softmax,
          .flops = flops_of_result<5>,  // largest, less it, exp, sum, quotient
          .inplace = {{0}}};
}

OpDef backward(std::string name, std::string doc) {
  return {.name = name,
          .aten = {"aten::" + name},
          .doc = std::move(doc),
          .operands = {"grad_output", "output"},
          .attrs = {dim_attr, {"input_dtype", {}}},
          .infer = infer_backward,
          .flops = flops_of_result<4>,  // product, sum, less it, product
          .inplace = {{0, 1}}};
}

}  // namespace

std::vector<OpDef> softmax_ops() {
  return {
      forward("_softmax", "exp(x) divided by its sum along `dim`."),
      forward("_safe_softmax", "Like _softmax; where every entry along `dim` is -inf the result "
                               "is 0."),
      forward("_log_softmax", "Logarithm of the softmax along `dim`."),
      backward("_softmax_backward_data", "Gradient of _softmax from its output; `input_dtype` is "
                                         "the dtype of `output`."),
      backward("_log_softmax_backward_data", "Gradient of _log_softmax from its output; "
                                             "`input_dtype` is the dtype of `output`."),
  };
}

}  // namespace poptorch::ops
