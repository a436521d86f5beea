#include "schedule/task_order.h"

#include <algorithm>

#include "ir/bodies.h"
#include "ir/part.h"

namespace poptorch::schedule {

void TaskOrder::add(const ir::Op& op, const std::vector<const ir::Op*>& before) {
  int64_t least = 0;
  for (const ir::Op* other : before) least = std::max(least, tasks_.at(other));
  int64_t task = least;
  if (op.name == ir::op::input) return void(tasks_[&op] = 0);
  const auto count = static_cast<int64_t>(report_.tasks.size());
  while (task < count && !fits(op, report_.tasks[static_cast<size_t>(task)])) ++task;
  tasks_[&op] = task < count ? task : least;
}

// A loop is where its ops are.
bool TaskOrder::fits(const ir::Op& op, const tasks::TaskRow& row) const {
  for (const ir::Graph* body : ir::bodies_of(module_, op)) {
    for (const auto& inner : body->ops) {
      if (ir::has_bodies(*inner) || ir::runs_on_ipu(inner->name)) return fits(*inner, row);
    }
  }
  return op.attrs.get_int(ir::attr::ipu, 0) == row.ipu &&
         op.attrs.get_int(ir::attr::stage, 0) == row.stage &&
         op.attrs.maybe_int(ir::attr::phase) == row.phase &&
         (row.part == "both" || row.part == ir::name_of(ir::part_of(op)));
}

void TaskOrder::sort(ir::Graph& graph) const {
  std::stable_sort(graph.ops.begin(), graph.ops.end(), [&](const auto& a, const auto& b) {
    return tasks_.at(a.get()) < tasks_.at(b.get());
  });
  for (const auto& op : graph.ops) op->attrs.set(ir::attr::task, tasks_.at(op.get()));
}

}  // namespace poptorch::schedule
