// The order of a graph in which the ops of each task stand together, for hosts that run tasks of
// several micro-batches at the same time (run/host/stage_loop.h).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "tasks/report.h"

namespace poptorch::schedule {

class TaskOrder {
 public:
  TaskOrder(const ir::Module& module, const tasks::Report& report)
      : module_(module), report_(report) {}

  // An op of the graph, after those of `before`, which must run earlier. Its task is the first one
  // of its place and part that does not come before theirs, and otherwise the last one of theirs.
  void add(const ir::Op& op, const std::vector<const ir::Op*>& before);
  // Moves the ops of each task together, in the order of the tasks, and writes `task` on each op.
  void sort(ir::Graph& graph) const;

 private:
  bool fits(const ir::Op& op, const tasks::TaskRow& row) const;

  const ir::Module& module_;
  const tasks::Report& report_;
  std::unordered_map<const ir::Op*, int64_t> tasks_;
};

}  // namespace poptorch::schedule
