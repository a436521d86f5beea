// Sorting and the largest elements, by a bitonic network over all tiles.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

// Stages of comparisons within a tile take the tile's elements once each; those between tiles
// exchange them.
void add_network(Steps& steps, const Call& call, double elements, double rows, double length,
                 double stages) {
  const auto tiles = static_cast<double>(call.target.tiles);
  const double inputs = call.share(elements, 4);
  const double tiles_per_row = std::max(1.0, std::min(tiles / std::max(1.0, rows),
                                                      length / std::max(1.0, inputs)));
  const double between = std::ceil(std::log2(tiles_per_row));
  const double crossing = between * (between + 1) / 2;
  // Keys and their numbers: comparison, two selections, stores.
  steps.add(workers_cycles(inputs, 8, call.target) * std::max(1.0, stages - crossing));
  if (crossing > 0) {
    steps.add(workers_cycles(inputs, 8, call.target),
              inputs * 8 / call.target.exchange_bytes, crossing);
  }
  steps.use_temporary(2 * inputs * 8);
}

double length_of(const Call& call) {
  const ir::Type& x = call.operand(0);
  const int64_t dim =
      ops::wrap_dim(call, call.attrs().get_int(ir::attr::dim), std::max<int64_t>(1, x.rank()));
  return x.rank() == 0 ? 1 : static_cast<double>(x.sizes[static_cast<size_t>(dim)]);
}

Cost sort_cost(const Call& call) {
  Steps steps(call);
  const double elements = ops::numel(call.operand(0));
  if (elements == 0) return steps.cost;
  const double length = length_of(call);
  const double depth = std::ceil(std::log2(std::max(2.0, length)));
  add_network(steps, call, elements, elements / length, length, depth * (depth + 1) / 2);
  return steps.cost;
}

// Sorted runs of k. Pairs of runs are merged until one is left.
Cost topk_cost(const Call& call) {
  Steps steps(call);
  const double elements = ops::numel(call.operand(0));
  if (elements == 0) return steps.cost;
  const double length = length_of(call);
  const auto k = static_cast<double>(call.attrs().get_int(ir::attr::k));
  const double run = std::ceil(std::log2(std::max(2.0, k)));
  const double merges = std::ceil(std::log2(std::max(2.0, length / std::max(1.0, k))));
  // Each merge halves what is left: together as much as two of them.
  const double stages = run * (run + 1) / 2 + std::min(merges, 2.0) * (run + 1);
  add_network(steps, call, elements, elements / length, length, stages);
  steps.add(0, 0, merges);
  return steps.cost;
}

}  // namespace

std::vector<CostRow> sorting_costs() { return {{"sort", sort_cost}, {"topk", topk_cost}}; }

}  // namespace poptorch::device
