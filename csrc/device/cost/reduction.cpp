// Reductions over dimensions, and running ones.
#include "device/cost/steps.h"
#include "ops/families/reduction.h"

namespace poptorch::device {

namespace {

struct Shape {
  double outputs = 1, depth = 1;
  int64_t item = 4;
};

Shape shape_of(const Call& call) {
  const ir::Type& x = call.operand(0);
  const std::vector<bool> reduced = ops::reduced_dims(call, x);
  Shape out;
  out.item = ir::item_bytes(x.dtype);
  for (size_t d = 0; d < x.sizes.size(); ++d) {
    (reduced[d] ? out.depth : out.outputs) *= static_cast<double>(x.sizes[d]);
  }
  return out;
}

template <int passes, bool is_sum = false>
Cost reduction_cost(const Call& call) {
  Steps steps(call);
  if (call.operand(0).numel() == 0) return steps.cost;
  const Shape shape = shape_of(call);
  steps.add_tree(shape.outputs, shape.depth, shape.item, passes, is_sum);
  return steps.cost;
}

// Maximum, exponentials of differences, their sum.
Cost logsumexp_cost(const Call& call) {
  Steps steps(call);
  if (call.operand(0).numel() == 0) return steps.cost;
  const Shape shape = shape_of(call);
  steps.add_tree(shape.outputs, shape.depth, shape.item, 2);
  steps.add_elementwise(call.share(call.operand(0)), shape.item, 8);
  return steps.cost;
}

// Each tile its own part of the dimension, then what stands before it.
Cost running_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  steps.add_elementwise(call.share(x), ir::item_bytes(x.dtype), 6);
  steps.add_elementwise(call.share(x), ir::item_bytes(x.dtype), 3);
  return steps.cost;
}

}  // namespace

std::vector<CostRow> reduction_costs() {
  return {{"sum", reduction_cost<1, true>},  {"mean", reduction_cost<1, true>},
          {"prod", reduction_cost<1, true>}, {"amax", reduction_cost<1>},
          {"amin", reduction_cost<1>},  {"all", reduction_cost<1>},
          {"any", reduction_cost<1>},   {"argmax", reduction_cost<2>},
          {"argmin", reduction_cost<2>}, {"max_dim", reduction_cost<2>},
          {"min_dim", reduction_cost<2>}, {"var", reduction_cost<2, true>},
          {"logsumexp", logsumexp_cost}, {"cumsum", running_cost},
          {"cumprod", running_cost}};
}

}  // namespace poptorch::device
