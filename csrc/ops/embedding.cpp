// Rows of table look-up.
#include "ops/indexing.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

using ir::Dims;
using ir::Type;

std::vector<Type> infer_embedding(const InferInput& in) {
  const Type& weight = in.operand(0);
  USER_CHECK(weight.rank() == 2, "[embedding] the weight is ", weight.text(),
             ", a matrix [entries, width] is needed. Reshape it.");
  check_index(in, 1);
  Dims sizes = in.operand(1).sizes;
  sizes.push_back(weight.sizes[1]);
  return {{weight.dtype, sizes, {}}};
}

std::vector<Type> infer_embedding_backward(const InferInput& in) {
  const Type& grad = in.operand(0);
  const Type& indices = in.operand(1);
  check_index(in, 1);
  Dims expected = indices.sizes;
  expected.push_back(grad.rank() > 0 ? grad.sizes.back() : 0);
  USER_CHECK(grad.sizes == expected, "[embedding_backward] grad_output is ", grad.text(),
             ", the indices are ", indices.text(),
             ". Give a gradient with the sizes of the indices and one more dimension.");
  const int64_t entries = in.attrs().get_int("num_weights");
  USER_CHECK(entries >= 0, "[embedding_backward] num_weights is ", entries,
             ", it must not be negative. Give the number of rows of the weight.");
  return {{grad.dtype, {entries, expected.back()}, {}}};
}

}  // namespace

std::vector<OpDef> embedding_ops() {
  return {
      {.name = "embedding",
       .aten = {"aten::embedding"},
       .doc = "Row indices[...] of `weight`. `padding_idx` matters to the gradient only.",
       .operands = {"weight", "indices"},
       .attrs = {{"padding_idx", -1}, {"scale_grad_by_freq", false}, {"sparse", false}},
       .infer = infer_embedding},
      {.name = "embedding_backward",
       .aten = {"aten::embedding_dense_backward"},
       .doc = "Gradient of the weight: rows of `grad_output` added up by index, those of "
              "`padding_idx` left out; with `scale_grad_by_freq` divided by how often the index "
              "occurs.",
       .operands = {"grad_output", "indices"},
       .attrs = {{"num_weights", 0, true}, {"padding_idx", -1}, {"scale_grad_by_freq", false}},
       .infer = infer_embedding_backward},
  };
}

}  // namespace poptorch::ops
