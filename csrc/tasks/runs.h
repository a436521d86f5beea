// What tasks need of each other, and the order of tasks where no simple one fits.
#pragma once

#include <compare>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"
#include "place/strategy.h"

namespace poptorch::tasks {

// Ops of one key are in one task where the order of the stages allows it.
struct Key {
  place::Spot spot;
  bool is_backward = false;

  auto operator<=>(const Key&) const = default;
};

using Keys = std::unordered_map<const ir::Op*, Key>;

// Which ops with a key an op with a key reads, through moves and ops that have none.
class Dependencies {
 public:
  Dependencies(const ir::Graph& graph, const Keys& keys,
               const std::unordered_set<const ir::Op*>& everywhere);

  const std::vector<const ir::Op*>& of(const ir::Op& op) const { return before_.at(&op); }

 private:
  std::unordered_map<const ir::Op*, std::vector<const ir::Op*>> before_;
};

// Runs of ops of one key, in an order that their dependencies allow. As long as ops of the key of a
// run are left whose operands are there, they are in it. Then comes the run of the first op left,
// forward before backward. States and streams are in the first run that reads them.
// `run_of` gets the number of each op's run.
std::vector<Key> in_turn(const ir::Graph& graph, const Dependencies& dependencies,
                         const Keys& keys, std::unordered_map<const ir::Op*, size_t>& run_of);

}  // namespace poptorch::tasks
