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
#include "tasks/edges.h"

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

// Whether a task may have the op, or what is in it.
bool is_of_task(const ir::Op& op) {
  return (ir::runs_on_ipu(op.name) || ir::has_bodies(op)) && op.name != ir::op::all_reduce;
}

// The op, or the first one in a loop of the user's.
const ir::Op& first_op(const ir::Module& module, const ir::Op& op) {
  for (const ir::Graph* body : ir::bodies_of(module, op)) {
    for (const auto& inner : body->ops) {
      if (is_of_task(*inner)) return first_op(module, *inner);
    }
  }
  return op;
}

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

class Reporter {
 public:
  explicit Reporter(const ir::Module& module) : module_(module) {}

  Report read() {
    const ir::Graph& graph = graph_of_micro_batch(module_);
    const ir::Op* loop = has_tasks(graph) ? pipeline_of(module_, graph) : loop_of(graph);
    const ir::Graph& around = loop == nullptr ? graph : graph_with(*loop);
    repeats_ = is_repeated(around);
    report_.sync = sync_of(module_);
    if (loop != nullptr) report_.micro_batches = loop->attrs.get_int(ir::attr::count);
    report_.schedule = "sequential";
    if (has_tasks(graph)) {
      if (loop != nullptr) report_.schedule = loop->attrs.get_string(ir::attr::pipeline);
      add_tasks(edges_of(graph), graph);
    } else {
      add_parts(graph);
    }
    for (const auto& op : around.ops) add_step(*op, &around != &graph);
    return std::move(report_);
  }

 private:
  // The loop over micro-batches of a program that is not cut. A graph that updates is a whole step.
  const ir::Op* loop_of(const ir::Graph& graph) const {
    const bool is_step = std::any_of(graph.ops.begin(), graph.ops.end(), [](const auto& op) {
      return ir::part_of(*op) == ir::Part::update;
    });
    if (is_step) return nullptr;
    for (const ir::Op* op : module_.all_ops()) {
      const bool runs_it =
          op->name == ir::op::loop && op->attrs.get_graph(ir::attr::body) == graph.name;
      if (runs_it) return op;
    }
    return nullptr;
  }

  const ir::Graph& graph_with(const ir::Op& loop) const {
    for (const auto& graph : module_.graphs) {
      const bool has_loop = std::any_of(graph->ops.begin(), graph->ops.end(),
                                        [&](const auto& op) { return op.get() == &loop; });
      if (has_loop) return *graph;
    }
    throw_internal_error(__FILE__, __LINE__, "has_loop", "the loop is in no graph");
  }

  // Whether one step follows another.
  bool is_repeated(const ir::Graph& step) const {
    const std::vector<ir::Op*> ops = module_.all_ops();
    return std::any_of(ops.begin(), ops.end(), [&](const ir::Op* op) {
      return op->name == ir::op::loop && op->attrs.get_graph(ir::attr::body) == step.name &&
             op->attrs.get_int(ir::attr::count, 1) > 1;
    });
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
    const bool is_part = is_apart || ir::part_of(op) == ir::Part::update || is_reduction;
    if (ir::has_bodies(op) || !ir::runs_on_ipu(op.name) || !is_part) return;
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

Report report(std::string_view text) try {
  return Reporter(*place::parse_placed(text)).read();
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

std::vector<BlockRow> block_report(std::string_view text) try {
  const std::unique_ptr<ir::Module> module = place::parse_placed(text);
  std::vector<BlockRow> rows(1);
  std::map<std::string, size_t> numbers = {{"", 0}};
  std::map<const ir::Op*, size_t> blocks;
  size_t current = 0;
  for (const auto& op : graph_of_micro_batch(*module).ops) {
    const ir::Op& first = first_op(*module, *op);
    const ir::Part part = ir::part_of(first);
    if (!is_of_task(*op) || part == ir::Part::update) continue;
    size_t block = current;
    if (first.attrs.has(ir::attr::block)) {
      const std::string& name = first.attrs.get_string(ir::attr::block);
      const auto [known, is_new] = numbers.emplace(name, rows.size());
      if (is_new) rows.push_back({name});
      block = known->second;
    } else if (part == ir::Part::backward) {
      for (const ir::Value* operand : op->operands) {
        const auto known = operand == nullptr ? blocks.end() : blocks.find(operand->op);
        if (known != blocks.end() && !place::is_source(*operand->op)) block = known->second;
      }
    }
    if (part == ir::Part::forward && !place::is_source(*op)) current = block;
    blocks[op.get()] = block;
    (part == ir::Part::forward ? rows[block].forward : rows[block].backward) +=
        flops_of(*module, *op);
  }
  return rows;
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

}  // namespace poptorch::tasks
