// Products of matrices, and attention.
#include <algorithm>

#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

int64_t size(const ir::Type& type, int64_t from_end) {
  return type.sizes[static_cast<size_t>(type.rank() - from_end)];
}

bool is_turned(const Call& call, size_t i) {
  const ir::Op* from = call.op.operand(i)->op;
  return from != nullptr && from->name == ir::op::permute;
}

// A backward product that reads turned activations computes the gradient of weights; one that reads
// turned weights that of activations.
void set_pass(Problem& problem, const Call& call, size_t left) {
  const ir::Attr* part = call.attrs().find(ir::attr::part);
  const bool is_forward = call.attrs().has(ir::attr::recompute);  // once more
  if (part == nullptr || !(*part == ir::Attr("backward")) || is_forward) return;
  if (is_turned(call, left)) {
    problem.pass = Pass::weight_update;
    problem.is_layer = true;
  } else if (is_turned(call, left + 1)) {
    problem.pass = Pass::backward;
    problem.is_layer = true;
  }
}

Problem product_of(const Call& call, size_t left) {
  const ir::Type &a = call.operand(left), &b = call.operand(left + 1);
  Problem problem;
  problem.is_product = true;
  problem.item_bytes = ir::item_bytes(a.dtype);
  problem.partial_bytes = problem.item_bytes == 4 ? 4 : call.settings.partial_bytes;
  problem.batch = a.rank() > 1 ? size(a, 2) : 1;
  problem.in_channels = size(a, 1);
  problem.out_channels = b.rank() > 1 ? size(b, 1) : 1;
  for (int64_t i = 0; i + 2 < a.rank(); ++i) problem.groups *= a.sizes[static_cast<size_t>(i)];
  if (b.rank() <= 2) {
    // The same weights for all: one product of more rows.
    problem.batch *= problem.groups;
    problem.groups = 1;
  }
  set_pass(problem, call, left);
  return problem;
}

bool is_empty(const Call& call, size_t left) {
  return call.operand(left).numel() == 0 || call.operand(left + 1).numel() == 0;
}

Cost matmul_cost(const Call& call) {
  Steps steps(call);
  if (!is_empty(call, 0)) steps.add_product(product_of(call, 0));
  return steps.cost;
}

Cost half_partials_cost(const Call& call) {
  Steps steps(call);
  if (is_empty(call, 0)) return steps.cost;
  if (call.attrs().has(conv_sizes)) {
    steps.add_product(convolution_of(call.attrs().get_ints(conv_sizes)));
    return steps.cost;
  }
  Problem problem = product_of(call, 0);
  problem.partial_bytes = std::min<int64_t>(2, problem.item_bytes);
  steps.add_product(problem);
  return steps.cost;
}

// The product is added to the first operand.
Cost addmm_cost(const Call& call) {
  Steps steps(call);
  if (!is_empty(call, 1)) steps.add_product(product_of(call, 1));
  const ir::Type& out = call.result();
  steps.add_elementwise(call.share(out), ir::item_bytes(out.dtype), 3);
  return steps.cost;
}

struct Attention {
  int64_t heads = 1, queries = 1, keys = 1, width = 1, value_width = 1;
};

Attention attention_of(const ir::Type& q, const ir::Type& k, const ir::Type& v) {
  Attention out{1, size(q, 2), size(k, 2), size(q, 1), size(v, 1)};
  for (int64_t i = 0; i + 2 < q.rank(); ++i) out.heads *= q.sizes[static_cast<size_t>(i)];
  return out;
}

// rows x sums times sums x columns, for each head.
Problem head_product(const Call& call, const Attention& a, int64_t rows, int64_t sums,
                     int64_t columns) {
  Problem problem;
  problem.is_product = true;
  problem.groups = a.heads;
  problem.batch = rows;
  problem.in_channels = sums;
  problem.out_channels = columns;
  problem.item_bytes = ir::item_bytes(call.result().dtype);
  problem.partial_bytes = problem.item_bytes == 4 ? 4 : call.settings.partial_bytes;
  return problem;
}

double score_share(const Call& call, const Attention& a, int64_t item) {
  const auto scores = static_cast<double>(a.heads * a.queries) * static_cast<double>(a.keys);
  return call.share(scores, item);
}

Cost attention_cost(const Call& call) {
  Steps steps(call);
  const Attention a = attention_of(call.operand(0), call.operand(1), call.operand(2));
  if (call.result().numel() == 0) return steps.cost;
  const int64_t item = ir::item_bytes(call.result().dtype);
  const double scores = score_share(call, a, item);
  steps.add_product(head_product(call, a, a.queries, a.width, a.keys));
  if (call.has(3)) steps.add_elementwise(scores, item, 3);  // the mask
  // Maximum, difference, exponential and sum, quotient.
  steps.add_reduction(call.share(static_cast<double>(a.heads * a.queries), item),
                      static_cast<double>(a.keys), item);
  steps.add_elementwise(scores, item, 8);
  steps.add_reduction(call.share(static_cast<double>(a.heads * a.queries), item),
                      static_cast<double>(a.keys), item);
  steps.add_elementwise(scores, item, 6);
  if (call.attrs().get_float(ir::attr::dropout_p) > 0) steps.add_elementwise(scores, item, 4);
  steps.add_product(head_product(call, a, a.queries, a.keys, a.value_width));
  steps.use_temporary(2 * scores * static_cast<double>(item));
  return steps.cost;
}

// The scores once more, then the gradients of values, scores, queries and keys.
Cost attention_backward_cost(const Call& call) {
  Steps steps(call);
  const Attention a = attention_of(call.operand(1), call.operand(2), call.operand(3));
  if (call.operand(0).numel() == 0) return steps.cost;
  const int64_t item = ir::item_bytes(call.operand(0).dtype);
  const double scores = score_share(call, a, item);
  steps.add_product(head_product(call, a, a.queries, a.width, a.keys));
  steps.add_elementwise(scores, item, 8);
  steps.add_product(head_product(call, a, a.keys, a.queries, a.value_width));
  steps.add_product(head_product(call, a, a.queries, a.value_width, a.keys));
  steps.add_reduction(call.share(static_cast<double>(a.heads * a.queries), item),
                      static_cast<double>(a.keys), item);
  steps.add_elementwise(scores, item, 5);
  steps.add_product(head_product(call, a, a.queries, a.keys, a.width));
  steps.add_product(head_product(call, a, a.keys, a.queries, a.width));
  steps.use_temporary(3 * scores * static_cast<double>(item));
  return steps.cost;
}

}  // namespace

std::vector<CostRow> product_costs() {
  return {{"matmul", matmul_cost},
          {"float16_partials_matmul", half_partials_cost},
          {"addmm", addmm_cost},
          {"baddbmm", addmm_cost},
          {"attention", attention_cost},
          {"attention_backward", attention_backward_cost}};
}

}  // namespace poptorch::device
