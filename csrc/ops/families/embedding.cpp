// Rows of table look-up.
#include <algorithm>

#include "ops/checks.h"
#include "ops/families/indexing.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

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
  const int64_t entries = in.attrs().get_int(ir::attr::num_weights);
  USER_CHECK(entries >= 0, "[embedding_backward] num_weights is ", entries,
             ", it must not be negative. Give the number of rows of the weight.");
  const Type out{grad.dtype, {entries, expected.back()}, {}};
  expect_sizes(in, 2, out.sizes);
  expect_dtype(in, 2, out.dtype);
  USER_CHECK(!in.has(2) || !in.attrs().get_bool(ir::attr::scale_grad_by_freq),
             "[embedding_backward] sum is given and scale_grad_by_freq true, but what is added to "
             "cannot be divided. Leave one of them out.");
  return {out};
}

// The sizes of a sum over bags, of operands from `first` on: weight, indices, offsets?, weights?.
Dims check_bags(const InferInput& in, size_t first) {
  const Type& weight = in.operand(first);
  const Type& indices = in.operand(first + 1);
  const std::string& mode = in.attrs().get_string(ir::attr::mode);
  USER_CHECK(weight.rank() == 2, "[", in.op.name, "] the weight is ", weight.text(),
             ", a matrix [entries, width] is needed. Reshape it.");
  check_index(in, first + 1);
  USER_CHECK(mode == "sum" || mode == "mean" || mode == "max", "[", in.op.name, "] mode is \"",
             mode, "\". Use \"sum\", \"mean\" or \"max\".");
  const bool has_offsets = in.has(first + 2), has_weights = in.has(first + 3);
  USER_CHECK(indices.rank() == (has_offsets ? 1 : 2), "[", in.op.name, "] the indices are ",
             indices.text(), has_offsets ? " with offsets" : " without offsets",
             ". Give a vector with offsets, or a matrix without.");
  USER_CHECK(!has_weights || (mode == "sum" && in.operand(first + 3).sizes == indices.sizes),
             "[", in.op.name, "] per_sample_weights are ",
             has_weights ? in.operand(first + 3).text() : "", ", the indices ", indices.text(),
             ", the mode \"", mode, "\". Give one weight for each index, in the mode \"sum\".");
  if (!has_offsets) return {indices.sizes[0], weight.sizes[1]};
  check_index(in, first + 2);
  const Type& offsets = in.operand(first + 2);
  const int64_t last = in.attrs().get_bool(ir::attr::include_last_offset) ? 1 : 0;
  USER_CHECK(offsets.rank() == 1 && offsets.sizes[0] >= last, "[", in.op.name, "] the offsets are ",
             offsets.text(), ", a vector of ", last, " or more is needed. Flatten them.");
  return {offsets.sizes[0] - last, weight.sizes[1]};
}

std::vector<Type> infer_bag(const InferInput& in) {
  return {{in.operand(0).dtype, check_bags(in, 0), {}}};
}

std::vector<Type> infer_bag_backward(const InferInput& in) {
  const Dims expected = check_bags(in, 1);
  USER_CHECK(in.operand(0).sizes == expected, "[embedding_bag_backward] grad_output is ",
             in.operand(0).text(), ", the sizes ", ir::Attr(expected).text(),
             " are needed. Give one row for each bag.");
  const ir::DType dtype = in.operand(0).dtype;
  return {{dtype, in.operand(1).sizes, {}},
          {dtype, in.has(4) ? in.operand(4).sizes : Dims{0}, {}}};
}

// Without `sum` the whole result is written.
double embedding_backward_bytes(const WorkInput& in) {
  if (!in.has(2)) return operands_bytes(in) + results_bytes(in);
  return operands_bytes(in, 0, 2) + 2 * std::min(operand_bytes(in, 0), results_bytes(in));
}

// Elements of the rows that bags list, of operands from `weight` on: weight, indices, offsets?,
// weights?.
template <size_t weight>
double listed(const WorkInput& in) {
  return numel(in.operand(weight + 1)) * static_cast<double>(in.operand(weight).sizes[1]);
}

template <size_t weight>
double listed_bytes(const WorkInput& in) {
  const auto item = static_cast<double>(ir::item_bytes(in.operand(weight).dtype));
  return std::min(operand_bytes(in, weight), listed<weight>(in) * item);
}

// Each element is taken into its bag, and before that multiplied by the weight of its sample.
double bag_flops(const WorkInput& in) { return listed<0>(in) * (1 + in.has(3)); }

double bag_bytes(const WorkInput& in) {
  return listed_bytes<0>(in) + operands_bytes(in, 1) + results_bytes(in);
}

// With weights of samples also a product, and one with its sum for the gradient of these.
double bag_backward_flops(const WorkInput& in) { return listed<1>(in) * (in.has(4) ? 4 : 1); }

// The table is read to find largest entries, and for the gradients of the weights of samples.
double bag_backward_bytes(const WorkInput& in) {
  const bool reads_table = in.has(4) || in.attrs().get_string(ir::attr::mode) == "max";
  return (reads_table ? listed_bytes<1>(in) : 0) + operands_bytes(in, 0, 1) + results_bytes(in);
}

const std::vector<AttrDef> bag_attrs = {
    {"mode", "mean", true}, {"padding_idx", -1}, {"include_last_offset", false}};

std::vector<OpDef> bag_rows() {
  return {
      {.name = "embedding_bag",
       .aten = {"poptorch::embedding_bag"},
       .doc = "Sum, mean or largest of the rows of `weight` that each bag lists; a bag is a row of "
              "`indices`, or what lies between two `offsets`. Those of `padding_idx` do not count.",
       .operands = {"weight", "indices", "offsets?", "per_sample_weights?"},
       .attrs = bag_attrs,
       .infer = infer_bag,
       .flops = bag_flops,
       .bytes = bag_bytes},
      {.name = "embedding_bag_backward",
       .aten = {"poptorch::embedding_bag_backward"},
       .doc = "Gradients of the weight and of the weights of the samples. Of equal largest entries "
              "the first one takes it all.",
       .operands = {"grad_output", "weight", "indices", "offsets?", "per_sample_weights?"},
       .results = {"dweight", "dsamples"},
       .attrs = bag_attrs,
       .infer = infer_bag_backward,
       .flops = bag_backward_flops,
       .bytes = bag_backward_bytes},
  };
}

std::vector<OpDef> table_rows() {
  return {
      {.name = "embedding",
       .aten = {"aten::embedding"},
       .doc = "Row indices[...] of `weight`. `padding_idx` matters to the gradient only.",
       .operands = {"weight", "indices"},
       .attrs = {{"padding_idx", -1}, {"scale_grad_by_freq", false}, {"sparse", false}},
       .infer = infer_embedding,
       .flops = none,
       .bytes = look_up_bytes},
      {.name = "embedding_backward",
       .aten = {"aten::embedding_dense_backward"},
       .doc = "Gradient of the weight: rows of `grad_output` added up by index, those of "
              "`padding_idx` left out; with `scale_grad_by_freq` divided by how often the index "
              "occurs. They are added to `sum`, if it is there.",
       .operands = {"grad_output", "indices", "sum?"},
       .attrs = {{"num_weights", 0, true}, {"padding_idx", -1}, {"scale_grad_by_freq", false}},
       .infer = infer_embedding_backward,
       .flops = flops_of_operand<>,
       .bytes = embedding_backward_bytes,
       .inplace = {{2}}},
  };
}

}  // namespace

std::vector<OpDef> embedding_ops() {
  return joined({table_rows(), bag_rows()});
}

}  // namespace poptorch::ops
