// Which part of a placed program is one step: one weight update, or one call for inference.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace poptorch::tasks {

struct StepGraphs {
  const ir::Graph* micro = nullptr;   // what one micro-batch runs: the graph with tasks, if any
  const ir::Op* loop = nullptr;       // over micro-batches; nullptr: a step has one
  const ir::Graph* around = nullptr;  // one run of it is a step; `micro` where there is no loop

  int64_t micro_batches() const;
};

StepGraphs step_of(const ir::Module& module);

// Whether a task may have the op, or what is in it.
bool is_of_task(const ir::Op& op);

// The op, or the first one in a loop of the user's.
const ir::Op& first_op(const ir::Module& module, const ir::Op& op);

// The loop that runs the graph; nullptr where none does.
const ir::Op* loop_of(const ir::Module& module, const ir::Graph& graph);

// The graph that has the op.
const ir::Graph& graph_with(const ir::Module& module, const ir::Op& op);

}  // namespace poptorch::tasks
