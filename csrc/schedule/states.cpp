#include "schedule/states.h"

#include "ir/bodies.h"

namespace poptorch::schedule {

namespace {

void collect(const ir::Module& module, const ir::Graph& graph, StateUses& uses) {
  if (uses.contains(&graph)) return;
  StateUse use;
  for (const auto& op : graph.ops) {
    if (op->name == ir::op::state) use.read.insert(op->attrs.get_string(ir::attr::path));
    if (op->name == ir::op::assign) use.assigned.insert(op->attrs.get_string(ir::attr::path));
    for (const ir::Graph* body : ir::bodies_of(module, *op)) {
      collect(module, *body, uses);
      const StateUse& inside = uses.at(body);
      use.read.insert(inside.read.begin(), inside.read.end());
      use.assigned.insert(inside.assigned.begin(), inside.assigned.end());
    }
  }
  uses.emplace(&graph, std::move(use));
}

}  // namespace

StateUses state_uses(const ir::Module& module) {
  StateUses uses;
  for (const auto& graph : module.graphs) collect(module, *graph, uses);
  return uses;
}

}  // namespace poptorch::schedule
