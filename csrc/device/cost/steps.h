// What the families of costs share: the op as a rule sees it, and the sum of its steps.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "device/cost/cost.h"
#include "device/partition/vertex.h"
#include "ops/work.h"

namespace poptorch::device {

// An op with all attributes of its row, on a target.
struct Call : ops::WorkInput {
  const Target& target;
  Settings settings;

  Call(const ir::Op& whole, const Target& target, const Settings& settings)
      : ops::WorkInput{{whole}}, target(target), settings(settings) {}

  // Of a tensor that is spread over all tiles: elements of the fullest one.
  double share(double elements, int64_t item_bytes) const;
  double share(const ir::Type& type) const;
};

// Adds up the steps of an op. A step is an exchange, a sync and the work of the tiles.
class Steps {
 public:
  explicit Steps(const Call& call);

  void add(double compute, double exchange = 0, double times = 1);
  // `elements` on a tile by all its workers, `cycles` for each vector of 8 bytes.
  void add_elementwise(double elements, int64_t item_bytes, double cycles, double times = 1);
  // Elements on a tile that come in another order, or from other tiles.
  void add_copy(double elements, int64_t item_bytes, double times = 1);
  // Sum of `depth` elements each to `outputs` on a tile.
  void add_reduction(double outputs, double depth, int64_t item_bytes, double times = 1);
  // Sums of `depth` elements of a tensor that is spread over the tiles, `times` of them, one after
  // the other: each tile sums its part, then a tree of tiles the rest. Partial sums of float16 are
  // float32; those that are the result are cast.
  void add_tree(double outputs, double depth, int64_t item_bytes, double times = 1,
                bool is_cast = false);
  // By the planner; returns the cycles.
  void add_product(const Problem& problem, double times = 1);
  void use_temporary(double bytes);

  Cost cost;

 private:
  const Call& call_;
};

// Cycles of all workers of a tile for `vectors`, `each` of one, after `base` cycles of each worker.
double workers_cycles(double vectors, double each, const Target& target, double base = 20);

using Rule = Cost (*)(const Call&);

struct CostRow {
  ir::RegisteredName name;
  Rule rule;
};

// One function for each family.
std::vector<CostRow> collective_costs();
std::vector<CostRow> convolution_costs();
std::vector<CostRow> elementwise_costs();
std::vector<CostRow> indexing_costs();
std::vector<CostRow> loss_costs();
std::vector<CostRow> move_costs();
std::vector<CostRow> norm_costs();
std::vector<CostRow> pooling_costs();
std::vector<CostRow> product_costs();
std::vector<CostRow> recurrent_costs();
std::vector<CostRow> reduction_costs();
std::vector<CostRow> sorting_costs();

// A pass of a float16 convolution with float16 partial sums; `sizes`: of the attribute conv_sizes.
Problem convolution_of(const ir::Dims& sizes);

// Any op that computes each element separately.
Cost elementwise_cost(const Call& call);

}  // namespace poptorch::device
