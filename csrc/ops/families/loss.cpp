// Rows of loss functions.
#include "ops/families/loss.h"

#include "ops/checks.h"
#include "ops/families/indexing.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

bool is_reduced(const InferInput& in) { return reduction_of(in) != Reduction::none; }

// -- elementwise losses --

Types infer_elementwise(const InferInput& in) {
  expect_float(in, 0);
  expect_like(in, 1, 0);
  const Type& x = in.operand(0);
  for (size_t i = 2; i < in.count(); ++i) {
    if (!in.has(i)) continue;
    expect_dtype(in, i, x.dtype);
    USER_CHECK(broadcast_sizes(in, in.operand(i).sizes, x.sizes) == x.sizes, "[", in.op.name, "] ",
               operand_name(in, i), " is ", in.operand(i).text(), ", it cannot be expanded to ",
               x.text(), ". Give a tensor that broadcasts to these sizes.");
  }
  return {{x.dtype, is_reduced(in) ? Dims{} : x.sizes}};
}

Types infer_elementwise_backward(const InferInput& in) {
  expect_float(in, 1);
  expect_like(in, 2, 1);
  expect_like(in, 3, 1);
  const Type& x = in.operand(1);
  expect_dtype(in, 0, x.dtype);
  if (is_reduced(in)) {
    USER_CHECK(in.operand(0).numel() == 1, "[", in.op.name, "] grad_output is ",
               in.operand(0).text(), ", the loss is one number. Give a gradient of one element.");
  } else {
    expect_sizes(in, 0, x.sizes);
  }
  return {{x.dtype, x.sizes}};
}

// The loss of an element, and the sum of all.
double elementwise_flops(const WorkInput& in) {
  return numel(in.operand(0)) * (is_reduced(in) ? 2 : 1);
}

// -- negative log likelihood --

// What the target's sizes must be: those of `self` without the classes.
Dims target_sizes(const InferInput& in, size_t self) {
  expect_float(in, self);
  expect_rank(in, self, 1);
  Dims sizes = in.operand(self).sizes;
  sizes.erase(sizes.begin() + (sizes.size() > 1 ? 1 : 0));
  return sizes;
}

int64_t class_count(const Type& x) { return x.sizes[x.rank() > 1 ? 1 : 0]; }

// Operands self, target, weight from number `first` on.
Dims check_nll(const InferInput& in, size_t first) {
  const Dims sizes = target_sizes(in, first);
  expect_index(in, first + 1);
  const bool one_sample = sizes.empty() && in.operand(first + 1).sizes == Dims{1};
  if (!one_sample) expect_sizes(in, first + 1, sizes);
  expect_sizes(in, first + 2, {class_count(in.operand(first))});
  expect_dtype(in, first + 2, in.operand(first).dtype);
  return in.operand(first + 1).sizes;
}

Types infer_nll(const InferInput& in) {
  const Dims sizes = check_nll(in, 0);
  const ir::DType dtype = in.operand(0).dtype;
  const bool one_sample = in.operand(0).rank() == 1;
  return {{dtype, is_reduced(in) || one_sample ? Dims{} : sizes}, {dtype, {}}};
}

Types infer_nll_backward(const InferInput& in) {
  const Dims sizes = check_nll(in, 1);
  const Type& x = in.operand(1);
  expect_dtype(in, 0, x.dtype);
  expect_dtype(in, 4, x.dtype);
  if (is_reduced(in) || x.rank() == 1) {
    USER_CHECK(in.operand(0).numel() == 1, "[", in.op.name, "] grad_output is ",
               in.operand(0).text(), ", the loss is one number. Give a gradient of one element.");
  } else {
    expect_sizes(in, 0, sizes);
  }
  return {{x.dtype, x.sizes}};
}

// The product with the weight, and the sum of all.
double nll_flops(const WorkInput& in) {
  return numel(in.operand(1)) * (is_reduced(in) ? 2 : 1);
}

// One entry of `self` for each target.
double nll_bytes(const WorkInput& in) {
  const auto item = static_cast<double>(ir::item_bytes(in.operand(0).dtype));
  return numel(in.operand(1)) * item + operands_bytes(in, 1) + results_bytes(in);
}

// -- cross entropy --

void expect_rows(const InferInput& in, size_t self) {
  USER_CHECK(in.operand(self).rank() == 2, "[", in.op.name, "] ", operand_name(in, self), " is ",
             in.operand(self).text(), ". Give scores [samples, classes].");
}

// Rounded to 16 bits, the gradient's exp(score - largest - log) would be off by percents.
ir::DType dtype_of_sums(ir::DType scores) {
  return ir::is_half(scores) ? ir::DType::f32 : scores;
}

Types infer_cross_entropy(const InferInput& in) {
  Types types = infer_nll(in);
  expect_rows(in, 0);
  types.push_back({dtype_of_sums(types[0].dtype), {in.operand(0).sizes[0], 2}});
  return types;
}

Types infer_cross_entropy_backward(const InferInput& in) {
  Types types = infer_nll_backward(in);
  expect_rows(in, 1);
  expect_sizes(in, 5, {in.operand(1).sizes[0], 2});
  expect_dtype(in, 5, dtype_of_sums(types[0].dtype));
  return types;
}

// Of each score: largest, less it, exp, sum, less its logarithm, as of _log_softmax.
double cross_entropy_flops(const WorkInput& in) {
  return 5 * numel(in.operand(0)) + nll_flops(in);
}

const AttrDef reduction_attr = {"reduction", 1};

OpDef elementwise(std::string name, std::string doc, std::vector<AttrDef> attrs = {}) {
  attrs.insert(attrs.begin(), reduction_attr);
  return {.name = name,
          .aten = {"aten::" + name},
          .doc = std::move(doc),
          .operands = {"self", "target"},
          .attrs = std::move(attrs),
          .infer = infer_elementwise,
          .flops = elementwise_flops};
}

OpDef elementwise_backward(const std::string& forward, std::vector<AttrDef> attrs = {}) {
  attrs.insert(attrs.begin(), reduction_attr);
  return {.name = forward + "_backward",
          .aten = {"aten::" + forward + "_backward"},
          .doc = "Gradient of " + forward + " with respect to `self`.",
          .operands = {"grad_output", "self", "target"},
          .attrs = std::move(attrs),
          .infer = infer_elementwise_backward,
          .flops = flops_of_result<>};
}

OpDef with_operands(OpDef row, const std::vector<std::string>& more) {
  row.operands.insert(row.operands.end(), more.begin(), more.end());
  return row;
}

std::vector<OpDef> likelihood_ops() {
  const std::vector<AttrDef> attrs = {reduction_attr, {"ignore_index", -100}};
  return {
      {.name = "nll_loss",
       .aten = {"aten::nll_loss_forward", "aten::nll_loss2d_forward"},
       .doc = "-weight[target] * self[target], the classes being dimension 1; entries whose "
              "target is `ignore_index` count for nothing. The mean is over the weights, whose "
              "sum is the second result.",
       .operands = {"self", "target", "weight?"},
       .results = {"out", "total_weight"},
       .attrs = attrs,
       .infer = infer_nll,
       .flops = nll_flops,
       .bytes = nll_bytes},
      {.name = "nll_loss_backward",
       .aten = {"aten::nll_loss_backward", "aten::nll_loss2d_backward"},
       .doc = "Gradient of nll_loss.",
       .operands = {"grad_output", "self", "target", "weight?", "total_weight"},
       .attrs = attrs,
       .infer = infer_nll_backward,
       .flops = flops_of_operand<2>,
       .bytes = bytes_without<1>},
      {.name = "cross_entropy",
       .doc = "nll_loss of the logarithm of the softmax of scores [samples, classes]. For the "
              "backward pass: of each row the largest score, and the logarithm of the sum of "
              "exp(score - largest), f32 for 16-bit floats. Made by the pass `fuse_cross_entropy`.",
       .operands = {"self", "target", "weight?"},
       .results = {"out", "total_weight", "sums"},
       .attrs = attrs,
       .infer = infer_cross_entropy,
       .flops = cross_entropy_flops},
      {.name = "cross_entropy_backward",
       .doc = "Gradient of cross_entropy.",
       .operands = {"grad_output", "self", "target", "weight?", "total_weight", "sums"},
       .attrs = attrs,
       .infer = infer_cross_entropy_backward,
       .flops = flops_of_result<3>,  // less the logarithm, exp, product
       .inplace = {{1}}},
  };
}

// -- CTC --

// Operands log_probs, targets and both lengths from number `first` on. Gives the sizes of alpha.
Dims check_ctc(const InferInput& in, size_t first) {
  const Type &probs = in.operand(first), &targets = in.operand(first + 1);
  USER_CHECK(probs.dtype == ir::DType::f32 || probs.dtype == ir::DType::f64, "[", in.op.name,
             "] log_probs are ", probs.text(), ". Give f32 or f64.");
  const bool fits = probs.rank() == 3 && targets.rank() == 2 && probs.sizes[1] == targets.sizes[0];
  USER_CHECK(fits, "[", in.op.name, "] log_probs are ", probs.text(), ", targets are ",
             targets.text(), ". Give [time, batch, classes] and [batch, labels].");
  for (size_t i = first + 1; i < first + 4; ++i) {
    check_index(in, i);
    expect_dtype(in, i, targets.dtype);
    if (i > first + 1) expect_sizes(in, i, {probs.sizes[1]});
  }
  const int64_t blank = in.attrs().get_int(ir::attr::blank);
  USER_CHECK(blank >= 0 && blank < probs.sizes[2], "[", in.op.name, "] blank is ", blank, " of ",
             probs.sizes[2], " classes. Use the number of a class.");
  return {probs.sizes[1], probs.sizes[0], 2 * targets.sizes[1] + 1};
}

Types infer_ctc(const InferInput& in) {
  const Dims alpha = check_ctc(in, 0);
  const ir::DType dtype = in.operand(0).dtype;
  return {{dtype, {alpha[0]}, {}}, {dtype, alpha, {}}};
}

Types infer_ctc_backward(const InferInput& in) {
  const Dims alpha = check_ctc(in, 1);
  const Type& probs = in.operand(1);
  expect_sizes(in, 0, {alpha[0]});
  expect_sizes(in, 5, alpha);
  expect_dtype(in, 0, probs.dtype);
  expect_dtype(in, 5, probs.dtype);
  return {{probs.dtype, probs.sizes, {}}};
}

// A state is reached from three: four for each in the logarithm of their sum, as of logsumexp, and
// the probability of the label.
constexpr double of_state = 13;

double ctc_flops(const WorkInput& in) { return of_state * numel(in.result(1)); }

// The same from behind; then each state is added to those of its label (5), and each class takes
// two exp, a difference and a product.
double ctc_backward_flops(const WorkInput& in) {
  return (of_state + 5) * numel(in.operand(5)) + 4 * numel(in.operand(1));
}

const OpDef ctc = {
    .name = "ctc_loss",
    .aten = {"poptorch::ctc_loss"},
    .doc = "Connectionist temporal classification: the negative logarithm of the probability of "
           "each sequence's labels, and `alpha`, that of the states on the way. With "
           "`zero_infinity` an infinite loss is 0.",
    .operands = {"log_probs", "targets", "input_lengths", "target_lengths"},
    .results = {"losses", "alpha"},
    .attrs = {{"blank", 0}, {"zero_infinity", false}},
    .infer = infer_ctc,
    .flops = ctc_flops};

const OpDef ctc_backward = {
    .name = "ctc_loss_backward",
    .aten = {"poptorch::ctc_loss_backward"},
    .doc = "Gradient of ctc_loss, as PyTorch has it: the probabilities of a step add up to 1.",
    .operands = {"grad_output", "log_probs", "targets", "input_lengths", "target_lengths", "alpha"},
    .results = {"dlog_probs"},
    .attrs = {{"blank", 0}, {"zero_infinity", false}},
    .infer = infer_ctc_backward,
    .flops = ctc_backward_flops};

// -- decoding --

Types infer_beam_search(const InferInput& in) {
  expect_float(in, 0);
  const Type &probs = in.operand(0), &lengths = in.operand(1);
  check_index(in, 1);
  USER_CHECK(probs.rank() == 3 && lengths.sizes == Dims{probs.sizes[1]},
             "[ctc_beam_search_decoder] probs are ", probs.text(), ", lengths are ",
             lengths.text(), ". Give [time, batch, classes] and [batch].");
  const int64_t blank = in.attrs().get_int(ir::attr::blank),
                width = in.attrs().get_int(ir::attr::beam_width);
  const int64_t top = in.attrs().get_int(ir::attr::top_paths);
  USER_CHECK(blank >= 0 && blank < probs.sizes[2], "[ctc_beam_search_decoder] blank is ", blank,
             " of ", probs.sizes[2], " classes. Use the number of a class.");
  USER_CHECK(top >= 1 && top <= width, "[ctc_beam_search_decoder] top_paths is ", top,
             ", beam_width is ", width, ". Let 1 <= top_paths <= beam_width.");
  const int64_t batch = probs.sizes[1];
  return {{probs.dtype, {batch, top}, {}},
          {ir::DType::i32, {batch, top}, {}},
          {ir::DType::i32, {batch, top, probs.sizes[0]}, {}}};
}

// Each of `beam_width` prefixes is extended by each class at each step.
double beam_search_flops(const WorkInput& in) {
  return numel(in.operand(0)) * static_cast<double>(in.attrs().get_int(ir::attr::beam_width));
}

const OpDef beam_search = {
    .name = "ctc_beam_search_decoder",
    .aten = {"poptorch::ctc_beam_search_decoder"},
    .doc = "The `top_paths` likeliest labellings of each sequence, by a prefix beam search: the "
           "logarithms of their probabilities, their lengths, and their labels with `blank` "
           "behind. Of equal ones the first in lexicographic order comes first. What is no path "
           "has the logarithm -infinity and the length 0.",
    .operands = {"probs", "lengths"},
    .results = {"path_probs", "path_lengths", "paths"},
    .attrs = {{"blank", 0}, {"beam_width", 100}, {"top_paths", 1}},
    .infer = infer_beam_search,
    .flops = beam_search_flops};

}  // namespace

Reduction reduction_of(const InferInput& in) {
  const int64_t reduction = in.attrs().get_int(ir::attr::reduction);
  USER_CHECK(reduction >= 0 && reduction <= 2, "[", in.op.name, "] reduction is ", reduction,
             ". Use 0 (none), 1 (mean) or 2 (sum).");
  return static_cast<Reduction>(reduction);
}

std::vector<OpDef> loss_ops() {
  const AttrDef beta = {"beta", 1.0}, delta = {"delta", 1.0};
  const std::vector<OpDef> by_element = {
      elementwise("mse_loss", "Squared difference."),
      elementwise_backward("mse_loss"),
      elementwise("smooth_l1_loss", "Absolute difference less beta / 2, quadratic below `beta`.",
                  {beta}),
      elementwise_backward("smooth_l1_loss", {beta}),
      elementwise("huber_loss", "smooth_l1_loss with beta = delta, times delta.", {delta}),
      elementwise_backward("huber_loss", {delta}),
      with_operands(elementwise("binary_cross_entropy",
                                "-weight * (target * log(self) + (1 - target) * log(1 - self)); "
                                "logarithms are at least -100."),
                    {"weight?"}),
      with_operands(elementwise_backward("binary_cross_entropy"), {"weight?"}),
      with_operands(elementwise("binary_cross_entropy_with_logits",
                                "binary_cross_entropy of sigmoid(self); `pos_weight` multiplies "
                                "the term of target = 1."),
                    {"weight?", "pos_weight?"}),
  };
  return joined({likelihood_ops(), by_element, {beam_search, ctc, ctc_backward}});
}

}  // namespace poptorch::ops
