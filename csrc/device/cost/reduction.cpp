// Reductions over dimensions, and running ones.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"
#include "ops/reduction.h"

namespace poptorch::device {

namespace {

// Sum of `elements` of a tile by all its workers; those that share a sum add theirs up.
double own_cycles(double elements, int64_t item, const Target& target) {
  constexpr double base = 39;
  return workers_cycles(std::ceil(elements * static_cast<double>(item) / 8), 3, target, base);
}

// The input is spread over the tiles: each sums its part, then a tree of tiles sums the rest.
// Partial sums of float16 are float32, and cast at the end: fitted to ten rows, one step.
void add_tree(Steps& steps, const Call& call, double outputs, double depth, int64_t item,
              double passes = 1, bool is_sum = false) {
  const auto tiles = static_cast<double>(call.target.tiles);
  const double inputs = call.share(outputs * depth, item);
  const double own_outputs = std::max(1.0, std::ceil(outputs / tiles));
  const double own = std::min(depth, std::max(1.0, inputs / own_outputs));
  const double left = std::ceil(depth / own);
  steps.add(own_cycles(inputs, item, call.target), 0, passes);
  const double stages = left <= 1 ? 0 : left >= 8 ? 2 : 1;
  const double factor = stages == 0 ? 1 : std::ceil(std::pow(left, 1 / stages));
  for (double stage = stages; stage > 0; --stage) {
    const double part = std::ceil(outputs * std::pow(factor, stage - 1) / tiles);
    steps.add(own_cycles(part * factor, 4, call.target),
              part * factor * 4 / call.target.exchange_bytes, passes);
  }
  if (is_sum && item == 2 && stages > 0) steps.add_elementwise(own_outputs, 4, 1, passes);
  steps.use_temporary(4 * outputs * left / tiles);
}

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
  add_tree(steps, call, shape.outputs, shape.depth, shape.item, passes, is_sum);
  return steps.cost;
}

// Maximum, exponentials of differences, their sum.
Cost logsumexp_cost(const Call& call) {
  Steps steps(call);
  if (call.operand(0).numel() == 0) return steps.cost;
  const Shape shape = shape_of(call);
  add_tree(steps, call, shape.outputs, shape.depth, shape.item, 2);
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
