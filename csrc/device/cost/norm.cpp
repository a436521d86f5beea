// Normalizations and softmax. Their statistics are reductions; then each element is scaled.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"
#include "support/mutant.h"

namespace poptorch::device {

namespace {

// `rows` groups of the input's elements, each with statistics of its own.
struct Groups {
  double elements = 1, rows = 1;
  int64_t item = 2;
};

void add_statistics(Steps& steps, const Groups& g, double sums) {
  steps.add_tree(g.rows, g.elements / g.rows, g.item, sums);
}

// The mean first, then the squares of what differs from it, which are made from the input and
// summed: one sum of two at a time, and one more pass over the input.
void add_stable_statistics(Steps& steps, const Call& call, const Groups& groups) {
  add_statistics(steps, groups, 1);
  const double inputs = call.share(groups.elements, groups.item);
  steps.add_elementwise(inputs, groups.item, 3);
  add_statistics(steps, groups, 1);
  steps.use_temporary(2 * inputs * static_cast<double>(groups.item));
}

// Functions of a row, then `cycles` a vector for each element.
void add_scaling(Steps& steps, const Call& call, const Groups& groups, double cycles) {
  const double elements = call.share(groups.elements, groups.item);
  steps.add_elementwise(call.share(groups.rows, 4), 4, 20);
  steps.add_elementwise(elements, groups.item, cycles);
  steps.use_temporary(elements * static_cast<double>(groups.item));
}

// Sums over rows, then the scaling.
Cost norm_cost(const Call& call, const Groups& groups, double sums, double cycles) {
  Steps steps(call);
  if (groups.elements == 0) return steps.cost;
  if (sums > 0) add_statistics(steps, groups, sums);
  add_scaling(steps, call, groups, cycles);
  return steps.cost;
}

Groups groups_of(const ir::Type& x, double rows) {
  return {ops::numel(x), std::max(1.0, rows), ir::item_bytes(x.dtype)};
}

// A norm that computes its statistics: mean and variance.
Cost whole_norm_cost(const Call& call, const Groups& groups) {
  const bool is_stable = call.settings.has_stable_norm && !MUTANT(ignores_stable_norm);
  if (!is_stable || groups.elements == 0) return norm_cost(call, groups, 2, 6);
  Steps steps(call);
  add_stable_statistics(steps, call, groups);
  add_scaling(steps, call, groups, 6);
  return steps.cost;
}

Cost batch_norm_cost(const Call& call) {
  const ir::Type& x = call.operand(0);
  return whole_norm_cost(call, groups_of(x, static_cast<double>(x.sizes[1])));
}

Cost batch_norm_backward_cost(const Call& call) {
  const ir::Type& x = call.operand(1);
  return norm_cost(call, groups_of(x, static_cast<double>(x.sizes[1])), 3, 10);
}

// No statistics: scale and shift.
Cost scale_cost(const Call& call) {
  return norm_cost(call, groups_of(call.operand(0), 1), 0, 6);
}

Cost layer_norm_cost(const Call& call) {
  return whole_norm_cost(call, groups_of(call.operand(0), ops::numel(call.result(1))));
}

Cost layer_norm_backward_cost(const Call& call) {
  return norm_cost(call, groups_of(call.operand(1), ops::numel(call.operand(2))), 4, 10);
}

Cost softmax_cost(const Call& call) {
  const ir::Type& x = call.operand(0);
  const int64_t dim = call.attrs().get_int(ir::attr::dim);
  const auto index = static_cast<size_t>(ops::wrap_dim(call, dim, std::max<int64_t>(1, x.rank())));
  const double depth = x.rank() == 0 ? 1 : static_cast<double>(x.sizes[index]);
  return norm_cost(call, groups_of(x, ops::numel(x) / std::max(1.0, depth)), 2, 14);
}

Cost softmax_backward_cost(const Call& call) {
  const ir::Type& x = call.operand(0);
  const int64_t dim = call.attrs().get_int(ir::attr::dim);
  const auto index = static_cast<size_t>(ops::wrap_dim(call, dim, std::max<int64_t>(1, x.rank())));
  const double depth = x.rank() == 0 ? 1 : static_cast<double>(x.sizes[index]);
  return norm_cost(call, groups_of(x, ops::numel(x) / std::max(1.0, depth)), 1, 9);
}

}  // namespace

std::vector<CostRow> norm_costs() {
  return {{"batch_norm", batch_norm_cost},
          {"batch_norm_backward", batch_norm_backward_cost},
          {"batch_norm_apply", scale_cost},
          {"batch_norm_inference", scale_cost},
          {"native_layer_norm", layer_norm_cost},
          {"native_layer_norm_backward", layer_norm_backward_cost},
          {"native_group_norm", layer_norm_cost},
          {"native_group_norm_backward", layer_norm_backward_cost},
          {"_softmax", softmax_cost},
          {"_log_softmax", softmax_cost},
          {"_safe_softmax", softmax_cost},
          {"_softmax_backward_data", softmax_backward_cost},
          {"_log_softmax_backward_data", softmax_backward_cost}};
}

}  // namespace poptorch::device
