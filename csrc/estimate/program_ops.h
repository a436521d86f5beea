// The ops of a placed program that cost something, in the order in which an IPU runs them, with how
// often each runs in one step: one weight update, or one call for inference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/part.h"

namespace poptorch::estimate {

struct ProgramOp {
  int64_t id = 0;  // place in the list
  const ir::Op* op = nullptr;
  const ir::Graph* graph = nullptr;  // that has the op
  std::string task;  // as tasks::report names it; empty: the op is outside of tasks
  int64_t ipu = 0;
  ir::Part part = ir::Part::forward;
  int64_t runs = 1;       // in one step of one replica: micro-batches times counts of loops
  int64_t task_runs = 1;  // in one run of its task
  // False in a loop that runs as long as a tensor says: each such loop counts as one round.
  bool runs_are_known = true;
};

// Whether the op computes and moves nothing: a value that is there, a view, a loop, a task. A stash
// is one too: it belongs to an edge between tasks.
bool is_structural(const ir::Op& op);

// The module is one after tasks::schedule, verified. What only `preprocess` runs is left out.
std::vector<ProgramOp> program_ops(const ir::Module& module);

}  // namespace poptorch::estimate
