#include "estimate/program_ops.h"

#include <set>

#include "device/cost/cost.h"
#include "ir/bodies.h"
#include "ops/op_def.h"
#include "ops/work.h"
#include "place/place.h"
#include "tasks/edges.h"
#include "tasks/step.h"

namespace poptorch::estimate {

namespace {

class Walk {
 public:
  explicit Walk(const ir::Module& module) : module_(module), step_(tasks::step_of(module)) {
    // A step is one round of the loops around it.
    for (const ir::Graph* graph = step_.around;;) {
      const ir::Op* loop = tasks::loop_of(module, *graph);
      if (loop == nullptr) break;
      outside_.insert(loop);
      graph = &tasks::graph_with(module, *loop);
    }
  }

  std::vector<ProgramOp> run() {
    add(*module_.entries().back(), {});
    return std::move(found_);
  }

 private:
  // `at`: what the ops of the graph have in common.
  void add(const ir::Graph& graph, const ProgramOp& at) {
    const bool has_parts = &graph == step_.micro && !tasks::has_tasks(graph);
    for (const auto& op : graph.ops) {
      ProgramOp inner = at;
      if (has_parts) inner.task = part_task(*op);
      if (op->name == ir::op::task) inner.task = op->attrs.get_graph(ir::attr::body);
      if (ir::has_bodies(*op)) {
        multiply(inner, *op);
        for (const ir::Graph* body : ir::bodies_of(module_, *op)) add(*body, inner);
      } else if (!is_structural(*op)) {
        add(*op, graph, std::move(inner));
      }
    }
  }

  void add(const ir::Op& op, const ir::Graph& graph, ProgramOp row) {
    row.id = static_cast<int64_t>(found_.size());
    row.op = &op;
    row.graph = &graph;
    row.ipu = op.attrs.get_int(ir::attr::ipu, 0);
    row.part = ir::part_of(op);
    found_.push_back(std::move(row));
  }

  // The task of an op of a program that is not cut: its part of the micro-batch.
  std::string part_task(const ir::Op& op) const {
    const ir::Part part = ir::part_of(tasks::first_op(module_, op));
    const bool is_there = tasks::is_of_task(op) && part != ir::Part::update;
    return is_there ? ir::name_of(part) : "";
  }

  void multiply(ProgramOp& row, const ir::Op& op) const {
    if (op.name != ir::op::loop || outside_.contains(&op)) return;
    if (op.attrs.get_bool(ir::attr::conditional, false)) {
      row.runs_are_known = false;
      return;
    }
    const int64_t count = op.attrs.get_int(ir::attr::count);
    row.runs *= count;
    if (&op != step_.loop) row.task_runs *= count;
  }

  const ir::Module& module_;
  const tasks::StepGraphs step_;
  std::set<const ir::Op*> outside_;  // loops that run steps; only looked up
  std::vector<ProgramOp> found_;
};

// An update leaves its result in the memory of the state. What was there before is copied.
bool is_in_place(const ir::Op& assign) {
  const ir::Op& maker = *assign.operand(0)->op;
  return ops::is_move(maker) || !place::is_source(maker);
}

}  // namespace

bool is_structural(const ir::Op& op) {
  if (op.name == ir::op::stash || ir::has_bodies(op)) return true;
  if (op.attrs.has(device::im2col)) return true;
  if (op.name == ir::op::assign) return is_in_place(op);
  const bool is_transfer = ops::is_move(op) || op.name == ir::op::stream_in ||
                           op.name == ir::op::stream_out;
  if (is_transfer) return false;
  const ops::OpDef& row = ops::op_def(op.name);
  return row.bytes == ops::none && row.flops == ops::none;
}

std::vector<ProgramOp> program_ops(const ir::Module& module) { return Walk(module).run(); }

}  // namespace poptorch::estimate
