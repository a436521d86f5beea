#include "tasks/step.h"

#include <algorithm>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/work.h"
#include "support/error.h"
#include "tasks/edges.h"

namespace poptorch::tasks {

namespace {

// The graph with tasks; where there is none, the body of the innermost loop that the program was
// built with.
const ir::Graph& graph_of_micro_batch(const ir::Module& module) {
  for (const auto& graph : module.graphs) {
    if (has_tasks(*graph)) return *graph;
  }
  for (const char* name : {"micro", "iteration"}) {
    if (const ir::Graph* graph = module.find_graph(name)) return *graph;
  }
  return *module.entries().back();
}

// Advancing the state of the random generator, which is part of the update too, has no FLOPs.
bool updates_weights(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const auto& op) {
    return op->name != ir::op::task && ir::part_of(*op) == ir::Part::update &&
           ops::work_of(*op).flops.value_or(1) > 0;
  });
}

}  // namespace

int64_t StepGraphs::micro_batches() const {
  return loop == nullptr ? 1 : loop->attrs.get_int(ir::attr::count);
}

StepGraphs step_of(const ir::Module& module) {
  StepGraphs step{&graph_of_micro_batch(module)};
  if (!updates_weights(*step.micro)) step.loop = loop_of(module, *step.micro);
  step.around = step.loop == nullptr ? step.micro : &graph_with(module, *step.loop);
  return step;
}

bool is_of_task(const ir::Op& op) {
  return (ir::runs_on_ipu(op.name) || ir::has_bodies(op)) && op.name != ir::op::all_reduce;
}

const ir::Op& first_op(const ir::Module& module, const ir::Op& op) {
  for (const ir::Graph* body : ir::bodies_of(module, op)) {
    for (const auto& inner : body->ops) {
      if (is_of_task(*inner)) return first_op(module, *inner);
    }
  }
  return op;
}

const ir::Op* loop_of(const ir::Module& module, const ir::Graph& graph) {
  for (const ir::Op* op : module.all_ops()) {
    const bool runs_it =
        op->name == ir::op::loop && op->attrs.get_graph(ir::attr::body) == graph.name;
    if (runs_it) return op;
  }
  return nullptr;
}

const ir::Graph& graph_with(const ir::Module& module, const ir::Op& op) {
  for (const auto& graph : module.graphs) {
    const bool has_op = std::any_of(graph->ops.begin(), graph->ops.end(),
                                    [&](const auto& other) { return other.get() == &op; });
    if (has_op) return *graph;
  }
  throw_internal_error(__FILE__, __LINE__, "has_op", "the op is in no graph");
}

}  // namespace poptorch::tasks
