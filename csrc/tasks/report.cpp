#include "tasks/report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/work.h"
#include "place/place.h"
#include "place/work_report.h"
#include "support/error.h"
#include "tasks/blocks.h"
#include "tasks/edges.h"
#include "tasks/step.h"

namespace poptorch::tasks {

namespace {

double flops_of(const ir::Module& module, const ir::Op& op) {
  if (!ir::has_bodies(op)) return ops::work_of(op).flops.value_or(0);
  if (op.attrs.get_bool(ir::attr::conditional, false)) return 0;
  double flops = 0;
  for (const ir::Graph* body : ir::bodies_of(module, op)) {
    for (const auto& inner : body->ops) flops += flops_of(module, *inner);
  }
  return flops * static_cast<double>(op.attrs.get_int(ir::attr::count, 1));
}

class Reporter {
 public:
  explicit Reporter(const ir::Module& module) : module_(module) {}

  Report read() {
    const StepGraphs step = step_of(module_);
    report_.micro_batches = step.micro_batches();
    report_.schedule = "sequential";
    if (has_tasks(*step.micro)) {
      const ir::Op* pipeline = pipeline_of(module_, *step.micro);
      if (pipeline != nullptr) report_.schedule = pipeline->attrs.get_string(ir::attr::pipeline);
      add_tasks(edges_of(*step.micro));
    } else {
      add_parts(*step.micro);
    }
    for (const auto& op : step.around->ops) add_step(*op, step.around != step.micro);
    return std::move(report_);
  }

 private:
  void add_work(TaskRow& row, const ir::Op& op) const {
    const double flops = flops_of(module_, op);
    row.flops += flops;
    if (op.attrs.has(ir::attr::recompute)) row.recomputed_flops += flops;
    if (op.name == ir::op::stream_in) row.bytes_in += op.result()->type.bytes();
    if (op.name == ir::op::stream_out) row.bytes_out += op.operand(0)->type.bytes();
  }

  void add_tasks(const TaskEdges& found) {
    for (const ir::Op* task : found.tasks) {
      TaskRow row{task->attrs.get_graph(ir::attr::body), task->attrs.get_string(ir::attr::part),
                  task->attrs.get_int(ir::attr::ipu), task->attrs.get_int(ir::attr::stage),
                  task->attrs.maybe_int(ir::attr::phase), task->attrs.get_int(ir::attr::offset, 0)};
      for (const auto& op : ir::body_of(module_, *task).ops) add_work(row, *op);
      report_.tasks.push_back(std::move(row));
    }
    std::map<std::tuple<size_t, size_t, bool, int64_t>, std::pair<int64_t, int64_t>> sums;
    for (const Edge& edge : found.edges) {
      const int64_t depth = edge.op == nullptr ? 1 : edge.op->attrs.get_int(ir::attr::depth, 1);
      for (const size_t target : edge.targets) {
        if (target == edge.source) continue;  // on the way to a stash
        auto& [bytes, tensors] = sums[{edge.source, target, edge.is_streaming, depth}];
        bytes += edge.bytes;
        ++tensors;
      }
    }
    for (const auto& [key, sum] : sums) {
      const auto& [source, target, is_streaming, depth] = key;
      report_.edges.push_back({report_.tasks[source].name, report_.tasks[target].name, sum.first,
                               sum.second, depth, is_streaming});
    }
  }

  // Of a program that is not cut: updates in the same graph are no task.
  void add_parts(const ir::Graph& graph) {
    for (const ir::Part part : {ir::Part::forward, ir::Part::backward}) {
      TaskRow row{ir::name_of(part), ir::name_of(part)};
      bool is_there = false;
      for (const auto& op : graph.ops) {
        if (!is_of_task(*op) || ir::part_of(first_op(module_, *op)) != part) continue;
        is_there = true;
        add_work(row, *op);
      }
      if (is_there) report_.tasks.push_back(std::move(row));
    }
  }

  // `is_apart`: the tasks are in a graph of their own.
  void add_step(const ir::Op& op, bool is_apart) {
    const bool is_reduction = op.name == ir::op::all_reduce;
    if (ir::has_bodies(op) || !ir::runs_on_ipu(op.name)) return;
    if (!is_apart && ir::part_of(op) != ir::Part::update && !is_reduction) return;
    const double flops = flops_of(module_, op);
    if (flops == 0) return;
    const int64_t ipu = op.attrs.get_int(ir::attr::ipu, 0);
    const char* kind = is_reduction ? "all_reduce" : "update";
    const auto known = std::find_if(
        report_.steps.begin(), report_.steps.end(),
        [&](const StepRow& row) { return row.ipu == ipu && row.kind == kind; });
    if (known == report_.steps.end()) {
      report_.steps.push_back({ipu, kind, flops});
    } else {
      known->flops += flops;
    }
  }

  const ir::Module& module_;
  Report report_;
};

}  // namespace

Report report(const ir::Module& module) { return Reporter(module).read(); }

Report report(std::string_view text) try {
  return report(*place::parse_placed(text));
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

std::vector<BlockRow> block_report(std::string_view text) try {
  const std::unique_ptr<ir::Module> module = place::parse_placed(text);
  std::vector<BlockRow> rows;
  for (const Block& block : blocks_of(*module)) {
    BlockRow row{block.name};
    for (const ir::Op* op : block.forward) row.forward += flops_of(*module, *op);
    for (const ir::Op* op : block.backward) row.backward += flops_of(*module, *op);
    rows.push_back(std::move(row));
  }
  return rows;
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

}  // namespace poptorch::tasks
