#include "tasks/report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
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

std::string sync_of(const ir::Module& module) {
  const ir::Op* strategy = place::find_strategy(module);
  if (strategy == nullptr) return "full";
  const std::string sync = std::get<std::string>(ops::attr_of(*strategy, ir::attr::sync).value);
  USER_CHECK(sync == "full" || sync == "single_pipeline" || sync == "replica_and_ladder",
             "[place] there is no sync pattern \"", sync, "\". It is one of full, single_pipeline, "
             "replica_and_ladder.");
  return sync;
}

class Reporter {
 public:
  explicit Reporter(const ir::Module& module) : module_(module) {}

  Report read() {
    const StepGraphs step = step_of(module_);
    repeats_ = is_repeated(*step.around);
    report_.sync = sync_of(module_);
    report_.micro_batches = step.micro_batches();
    report_.schedule = "sequential";
    if (has_tasks(*step.micro)) {
      report_.graph = step.micro->name;
      const ir::Op* pipeline = pipeline_of(module_, *step.micro);
      if (pipeline != nullptr) report_.schedule = pipeline->attrs.get_string(ir::attr::pipeline);
      add_tasks(edges_of(*step.micro), *step.micro);
    } else {
      add_parts(*step.micro);
    }
    for (const auto& op : step.around->ops) add_step(*op, step.around != step.micro);
    return std::move(report_);
  }

 private:
  // Whether one step follows another.
  bool is_repeated(const ir::Graph& step) const {
    const ir::Op* loop = loop_of(module_, step);
    return loop != nullptr && loop->attrs.get_int(ir::attr::count, 1) > 1;
  }

  std::string overlap_of(const ir::Op& stream) const {
    const std::string mode = std::get<std::string>(ops::attr_of(stream, ir::attr::overlap).value);
    USER_CHECK(mode.empty() || mode == "accumulation_loop" || mode == "device_iteration_loop",
               "[place] there is no overlap \"", mode, "\". It is one of accumulation_loop, "
               "device_iteration_loop.");
    if (mode.empty()) return "none";
    return mode == "device_iteration_loop" && repeats_ ? "step" : "loop";
  }

  void add_transfer(TransferRow row) {
    const auto known = std::find_if(
        report_.transfers.begin(), report_.transfers.end(), [&](const TransferRow& one) {
          return std::tie(one.task, one.is_host, one.is_output, one.overlap) ==
                 std::tie(row.task, row.is_host, row.is_output, row.overlap);
        });
    if (known == report_.transfers.end()) {
      report_.transfers.push_back(std::move(row));
    } else {
      known->bytes += row.bytes;
    }
  }

  void add_work(TaskRow& row, const ir::Op& op) {
    const double flops = flops_of(module_, op);
    row.flops += flops;
    if (op.attrs.has(ir::attr::recompute)) row.recomputed_flops += flops;
    if (op.name == ir::op::stream_in) {
      row.bytes_in += op.result()->type.bytes();
      add_transfer({row.name, true, false, overlap_of(op), op.result()->type.bytes()});
    } else if (op.name == ir::op::stream_out) {
      row.bytes_out += op.operand(0)->type.bytes();
      add_transfer({row.name, true, true, overlap_of(op), op.operand(0)->type.bytes()});
    } else if (is_read_ahead(op)) {
      add_transfer({row.name, false, false, "loop", op.attrs.get_int(ir::attr::bytes)});
    }
  }

  void add_tasks(const TaskEdges& found, const ir::Graph& graph) {
    for (const ir::Op* task : found.tasks) {
      TaskRow row{task->attrs.get_graph(ir::attr::body), task->attrs.get_string(ir::attr::part),
                  task->attrs.get_int(ir::attr::ipu), task->attrs.get_int(ir::attr::stage),
                  task->attrs.maybe_int(ir::attr::phase), task->attrs.get_int(ir::attr::offset, 0)};
      for (const auto& op : ir::body_of(module_, *task).ops) add_work(row, *op);
      report_.tasks.push_back(std::move(row));
    }
    add_edges(found, graph);
  }

  void add_edges(const TaskEdges& found, const ir::Graph& graph) {
    std::set<const ir::Value*> loaded;  // by the IO tiles
    for (const auto& op : graph.ops) {
      const bool is_load = op->name == ir::op::remote_load && ops::is_by_io_tiles(*op);
      if (is_load) loaded.insert(op->operand(0));
    }
    std::map<std::tuple<size_t, size_t, bool, int64_t>, EdgeRow> rows;
    for (const Edge& edge : found.edges) {
      const int64_t depth = edge.op == nullptr ? 1 : edge.op->attrs.get_int(ir::attr::depth, 1);
      bool is_stored = !edge.is_streaming;
      for (const size_t target : edge.targets) {
        if (target == edge.source) continue;  // on the way to a stash
        EdgeRow& row = rows[{edge.source, target, edge.is_streaming, depth}];
        row.source = report_.tasks[edge.source].name;
        row.target = report_.tasks[target].name;
        row.depth = depth;
        row.is_streaming = edge.is_streaming;
        row.bytes += edge.bytes;
        ++row.tensors;
        if (!edge.is_streaming) continue;
        if (!is_stored) row.stored_bytes += edge.bytes;
        is_stored = true;
        row.loads_by_io_tiles = row.loads_by_io_tiles || loaded.contains(edge.op->result());
        row.stores_by_io_tiles = row.stores_by_io_tiles || ops::is_by_io_tiles(store_of(edge));
      }
    }
    for (auto& [key, row] : rows) report_.edges.push_back(std::move(row));
  }

  // That brings the values of an edge to streaming memory.
  static const ir::Op& store_of(const Edge& edge) {
    return edge.op->name == ir::op::stash ? *edge.op->operand(0)->op : *edge.op;
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
  bool repeats_ = false;
  Report report_;
};

}  // namespace

bool is_read_ahead(const ir::Op& op) {
  return op.name == ir::op::remote_load && op.operand(0)->op->name == ir::op::state &&
         ops::is_by_io_tiles(op);
}

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
