// Rows of normalizations.
#include "ops/checks.h"
#include "ops/layout.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

// Sizes of the dimensions that are normalized: the last ones.
Dims normalized_sizes(const InferInput& in, const Type& x) {
  const Dims shape = in.attrs().get_ints(ir::attr::normalized_shape);
  const auto n = static_cast<int64_t>(shape.size());
  const bool fits = n > 0 && n <= x.rank() && Dims(x.sizes.end() - n, x.sizes.end()) == shape;
  USER_CHECK(fits, "[", in.op.name, "] input is ", x.text(), ", its last sizes are not ",
             "normalized_shape=", ir::Attr(shape).text(), ". Make them equal.");
  return shape;
}

// One entry for each normalized part.
Dims layer_statistics(const Type& x, const Dims& normalized) {
  Dims sizes = x.sizes;
  for (size_t i = 0; i < normalized.size(); ++i) sizes[sizes.size() - 1 - i] = 1;
  return sizes;
}

Types infer_layer_norm(const InferInput& in) {
  expect_float(in, 0);
  const Type& x = in.operand(0);
  const Dims normalized = normalized_sizes(in, x);
  for (size_t i : {1, 2}) expect_sizes(in, i, normalized);
  const Type statistics{x.dtype, layer_statistics(x, normalized)};
  return {{x.dtype, x.sizes}, statistics, statistics};
}

// Result types of a backward op: those not in `output_mask` have no elements.
Types masked(const InferInput& in, const Type& x, const Type& parameter) {
  const std::vector<bool> mask = in.attrs().get_bools(ir::attr::output_mask);
  USER_CHECK(mask.size() == 3, "[", in.op.name, "] output_mask has ", mask.size(),
             " entries, 3 are needed: input, weight, bias. Give three.");
  Types out = {{x.dtype, x.sizes}, parameter, parameter};
  for (size_t i = 0; i < 3; ++i) {
    if (!mask[i]) out[i].sizes = {0};
  }
  return out;
}

Type parameter_type(const InferInput& in, size_t weight, const Type& x, const Dims& sizes) {
  return {in.has(weight) ? in.operand(weight).dtype : x.dtype, sizes};
}

Types infer_layer_norm_backward(const InferInput& in) {
  expect_float(in, 0);
  expect_like(in, 1, 0);
  const Type& x = in.operand(1);
  const Dims normalized = normalized_sizes(in, x);
  for (size_t i : {2, 3}) expect_sizes(in, i, layer_statistics(x, normalized));
  for (size_t i : {4, 5}) expect_sizes(in, i, normalized);
  return masked(in, x, parameter_type(in, 4, x, normalized));
}

struct GroupSizes {
  Dims channels, statistics;
};

GroupSizes group_sizes(const InferInput& in, const Type& x) {
  const int64_t n = in.attrs().get_int(ir::attr::N), c = in.attrs().get_int(ir::attr::C);
  const int64_t pixels = in.attrs().get_int(ir::attr::HxW),
                group = in.attrs().get_int(ir::attr::group);
  const bool fits = x.rank() >= 2 && x.sizes[0] == n && x.sizes[1] == c &&
                    x.numel() == n * c * pixels;
  USER_CHECK(fits, "[", in.op.name, "] input is ", x.text(), ", the attributes say N=", n, ", C=",
             c, ", HxW=", pixels, ". Make them equal.");
  USER_CHECK(group > 0 && c % group == 0, "[", in.op.name, "] ", c,
             " channels cannot be cut into ", group, " groups. Choose a divisor of ", c, ".");
  return {{c}, {n, group}};
}

Types infer_group_norm(const InferInput& in) {
  expect_float(in, 0);
  const Type& x = in.operand(0);
  const GroupSizes sizes = group_sizes(in, x);
  for (size_t i : {1, 2}) expect_sizes(in, i, sizes.channels);
  const Type statistics{x.dtype, sizes.statistics};
  return {{x.dtype, x.sizes}, statistics, statistics};
}

Types infer_group_norm_backward(const InferInput& in) {
  expect_float(in, 0);
  expect_like(in, 1, 0);
  const Type& x = in.operand(1);
  const GroupSizes sizes = group_sizes(in, x);
  for (size_t i : {2, 3}) expect_sizes(in, i, sizes.statistics);
  expect_sizes(in, 4, sizes.channels);
  return masked(in, x, parameter_type(in, 4, x, sizes.channels));
}

// Batch statistics are never narrower than f32.
ir::DType statistics_dtype(const Type& x) {
  return x.dtype == ir::DType::f64 ? ir::DType::f64 : ir::DType::f32;
}

Dims channels_of(const InferInput& in, size_t i) {
  expect_float(in, i);
  expect_rank(in, i, 2);
  return {in.operand(i).sizes[1]};
}

Types infer_batch_norm(const InferInput& in) {
  const Dims channels = channels_of(in, 0);
  const Type& x = in.operand(0);
  for (size_t i : {1, 2, 3, 4}) expect_sizes(in, i, channels);
  if (in.has(5)) expect_like(in, 5, 0);
  USER_CHECK(x.numel() == 0 || x.numel() > channels[0], "[batch_norm] ", x.text(),
             " has one value for each channel, a variance needs more. Use a larger batch.");
  const Type statistics{statistics_dtype(x), channels};
  Types out = {{x.dtype, x.sizes}, statistics, statistics};
  for (size_t i : {3, 4}) {
    out.push_back(in.has(i) ? Type{in.operand(i).dtype, channels} : Type{x.dtype, {0}});
  }
  return out;
}

Types infer_batch_norm_inference(const InferInput& in) {
  const Dims channels = channels_of(in, 0);
  for (size_t i : {1, 2, 3, 4}) expect_sizes(in, i, channels);
  return same_as_first(in);
}

Types infer_batch_norm_apply(const InferInput& in) {
  if (in.has(5)) expect_like(in, 5, 0);
  return infer_batch_norm_inference(in);
}

Types infer_batch_norm_backward(const InferInput& in) {
  const Dims channels = channels_of(in, 1);
  expect_like(in, 0, 1);
  if (in.has(5)) expect_like(in, 5, 1);
  for (size_t i : {2, 3, 4}) expect_sizes(in, i, channels);
  const Type& x = in.operand(1);
  const Type parameter = parameter_type(in, 2, x, channels);
  Types out = {{x.dtype, x.sizes}, parameter, parameter};
  if (in.attrs().get_bool(ir::attr::grad_residual)) out.push_back({x.dtype, x.sizes});
  return out;
}

// For each element of operand 0: less the mean and times 1 / standard deviation, times the weight
// (operand 1), plus the bias (operand 2).
double apply_each(const WorkInput& in) { return 2 + in.has(1) + in.has(2); }

// The same, and before it the sum, and the square of the difference from the mean with its sum.
double forward_flops(const WorkInput& in) { return numel(in.operand(0)) * (4 + apply_each(in)); }

// Behind batch norm: plus the residual, and relu.
double after_each(const WorkInput& in) { return in.has(5) + in.attrs().get_bool(ir::attr::relu); }

double batch_norm_flops(const WorkInput& in) {
  return forward_flops(in) + numel(in.operand(0)) * after_each(in);
}

double inference_flops(const WorkInput& in) { return numel(in.operand(0)) * apply_each(in); }

double apply_flops(const WorkInput& in) {
  return inference_flops(in) + numel(in.operand(0)) * after_each(in);
}

// For each element, of the normalized operand 2 (it is computed again), of the gradients of:
// the input 7 (two sums, a product before one of them, four to put them together), and the product
// with the weight; the weight 2 (product and sum); the bias 1.
double backward_each(const std::vector<bool>& mask, bool has_weight) {
  return 2 + (mask[0] ? 7 + has_weight : 0) + (mask[1] ? 2 : 0) + mask[2];
}

double backward_flops(const WorkInput& in) {
  return numel(in.operand(1)) *
         backward_each(in.attrs().get_bools(ir::attr::output_mask), in.has(4));
}

// With running statistics the gradient of the input is two products. Where relu was, a selection is
// none.
double batch_norm_backward_flops(const WorkInput& in) {
  const bool training = in.attrs().get_bool(ir::attr::training);
  const double each = backward_each({training, true, true}, in.has(2));
  return numel(in.operand(1)) * (each + (training ? 0 : 1 + in.has(2)));
}

const AttrDef eps_attr = {"eps", 1e-5};
const AttrDef relu_attr = lowered_attr("relu", false);
const AttrDef mask_attr = {"output_mask", ir::AttrList{true, true, true}};

std::vector<AttrDef> group_attrs(AttrDef last) {
  return {{"N", 0, true}, {"C", 0, true}, {"HxW", 0, true}, {"group", 1}, std::move(last)};
}

std::vector<OpDef> layer_ops() {
  return {
      {.name = "native_layer_norm",
       .aten = {"aten::native_layer_norm"},
       .doc = "Brings the last dimensions to mean 0 and variance 1, then scales and shifts; also "
              "gives mean and 1 / standard deviation.",
       .operands = {"input", "weight?", "bias?"},
       .results = {"out", "mean", "rstd"},
       .attrs = {{"normalized_shape", ir::AttrList{}, true}, eps_attr},
       .infer = infer_layer_norm,
       .flops = forward_flops,
       .inplace = {{0}}},
      {.name = "native_layer_norm_backward",
       .aten = {"aten::native_layer_norm_backward"},
       .doc = "Gradients of native_layer_norm.",
       .operands = {"grad_out", "input", "mean", "rstd", "weight?", "bias?"},
       .results = {"grad_input", "grad_weight", "grad_bias"},
       .attrs = {{"normalized_shape", ir::AttrList{}, true}, mask_attr},
       .infer = infer_layer_norm_backward,
       .flops = backward_flops},
      {.name = "native_group_norm",
       .aten = {"aten::native_group_norm"},
       .doc = "Brings each group of channels of each sample to mean 0 and variance 1, then scales "
              "and shifts each channel; also gives mean and 1 / standard deviation.",
       .operands = {"input", "weight?", "bias?"},
       .results = {"out", "mean", "rstd"},
       .attrs = group_attrs(eps_attr),
       .infer = infer_group_norm,
       .flops = forward_flops,
       .inplace = {{0}}},
      {.name = "native_group_norm_backward",
       .aten = {"aten::native_group_norm_backward"},
       .doc = "Gradients of native_group_norm.",
       .operands = {"grad_out", "input", "mean", "rstd", "weight?"},
       .results = {"grad_input", "grad_weight", "grad_bias"},
       .attrs = group_attrs(mask_attr),
       .infer = infer_group_norm_backward,
       .flops = backward_flops},
  };
}

std::vector<OpDef> batch_ops() {
  return {
      {.name = "batch_norm",
       .aten = {"poptorch::batch_norm"},
       .doc = "Brings each channel of the batch to mean 0 and variance 1, then scales and shifts, "
              "adds `residual` and sets negative numbers to 0 (`relu`); also gives mean and 1 / "
              "standard deviation of the batch and the running statistics moved towards it by "
              "`momentum`.",
       .operands = {"x", "weight?", "bias?", "running_mean?", "running_var?", "residual?"},
       .results = {"out", "save_mean", "save_invstd", "new_running_mean", "new_running_var"},
       .attrs = {{"momentum", 0.1}, eps_attr, relu_attr, layout_attr},
       .infer = in_any_layout<infer_batch_norm>,
       .flops = batch_norm_flops,
       .inplace = {{5}, {}, {}, {3}, {4}}},
      {.name = "batch_norm_inference",
       .aten = {"poptorch::batch_norm_inference"},
       .doc = "Normalizes each channel by the running statistics, then scales and shifts.",
       .operands = {"x", "weight?", "bias?", "running_mean", "running_var"},
       .attrs = {eps_attr, layout_attr},
       .infer = in_any_layout<infer_batch_norm_inference>,
       .flops = inference_flops,
       .inplace = {{0}}},
      {.name = "batch_norm_apply",
       .doc = "The result `out` of `batch_norm` once more, from the statistics that it gave.",
       .operands = {"x", "weight?", "bias?", "mean", "invstd", "residual?"},
       .attrs = {relu_attr, layout_attr},
       .infer = in_any_layout<infer_batch_norm_apply>,
       .flops = apply_flops,
       .inplace = {{0, 5}},
       .lowered = true},
      {.name = "batch_norm_backward",
       .aten = {"poptorch::batch_norm_backward"},
       .doc = "Gradients of batch_norm (`training`) or batch_norm_inference. With `out`, the "
              "result of batch_norm with `relu`, the gradient counts only where that is not 0; "
              "`grad_residual` asks for that gradient as a fourth result.",
       .operands = {"grad", "x", "weight?", "mean", "invstd", "out?"},
       .results = {"grad_input", "grad_weight", "grad_bias", "grad_residual?"},
       .attrs = {{"training", true}, lowered_attr("grad_residual", false), layout_attr},
       .infer = in_any_layout<infer_batch_norm_backward>,
       .flops = batch_norm_backward_flops,
       .inplace = {{1, 0, 5}, {}, {}, {0, 5}}},
  };
}

}  // namespace

std::vector<OpDef> norm_ops() {
  return joined({layer_ops(), batch_ops()});
}

}  // namespace poptorch::ops
