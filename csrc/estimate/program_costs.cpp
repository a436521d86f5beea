#include "estimate/program_costs.h"

#include <algorithm>
#include <cmath>

#include "estimate/edge_cost.h"
#include "ir/bodies.h"
#include "ops/work.h"
#include "tasks/blocks.h"
#include "tasks/step.h"

namespace poptorch::estimate {

namespace {

// The error of the program as a whole, in addition to the errors of the families. Programs on
// hardware take 10 to 20 % longer than their ops.
constexpr double program_error = 0.15;
// Transfers between IPUs and to the host, by link rates; streaming memory has no published rate.
constexpr double link_error = 0.5;
constexpr double streaming_error = 1.0;

bool is_stream(const ir::Op& op) {
  return op.name == ir::op::stream_in || op.name == ir::op::stream_out;
}

// FLOPs in a cycle of all matrix units of an IPU: a multiply-add counts two. Types that they do not
// take count as float32.
double peak_flops(const ir::Op& op, const device::Target& target) {
  ir::DType dtype = ir::DType::f32;
  if (!op.results.empty()) dtype = op.result()->type.dtype;
  for (const ir::Value* operand : op.operands) {
    if (operand == nullptr || !ir::is_float(operand->type.dtype)) continue;
    dtype = operand->type.dtype;
    break;
  }
  const int64_t bytes = ir::is_float(dtype) ? ir::item_bytes(dtype) : 4;
  // A row is 4 groups of inputs in float16, 8 in float8 and 1 in float32, of each output.
  const int64_t rate = bytes >= 4   ? target.units_f32
                       : bytes == 2 ? 4 * target.units_f16_partials
                                    : 8 * target.units_f8;
  return 2.0 * static_cast<double>(rate) * static_cast<double>(target.tiles);
}

class Costs {
 public:
  Costs(const ir::Module& module, const tasks::Report& report, CostTable& table)
      : step_(tasks::step_of(module)), report_(report), table_(table) {
    for (const tasks::TaskRow& row : report.tasks) {
      task_numbers_[row.name] = out_.tasks.size();
      out_.tasks.push_back({row.name});
    }
    out_.steps.resize(report.steps.size());
  }

  ProgramCosts run(const ir::Module& module) {
    for (ProgramOp& at : program_ops(module)) add(std::move(at));
    for (const tasks::EdgeRow& edge : report_.edges) add(edge);
    const device::Target& target = table_.target();
    out_.host_call_cycles = target.host_call_seconds * target.clock_hz;
    out_.sync_cycles = meeting_cycles(last_ipu_ + 1, target);
    out_.distinct = table_.distinct();
    write_interval();
    return std::move(out_);
  }

 private:
  void add(ProgramOp at) {
    const ir::Op& op = *at.op;
    const device::Cost& cost = table_.of(op);
    const double flops = ops::work_of(op).flops.value_or(0);
    const double cycles = cost.cycles();
    const double possible = cycles * peak_flops(op, table_.target());
    last_ipu_ = std::max(last_ipu_, at.ipu);
    add_to_owner(at, cycles);
    add_error(device::family_of(op.name), cycles * static_cast<double>(at.runs));
    out_.ops.push_back({std::move(at), cost, flops, possible > 0 ? flops / possible : 0});
  }

  void add_to_owner(const ProgramOp& at, double cycles) {
    const auto task = task_numbers_.find(at.task);
    if (task != task_numbers_.end()) {
      TaskCost& row = out_.tasks[task->second];
      double& sum = tasks::is_read_ahead(*at.op)         ? row.ahead_cycles
                    : !is_stream(*at.op)                 ? row.cycles
                    : at.op->name == ir::op::stream_in ? row.in_cycles
                                                          : row.out_cycles;
      sum += cycles * static_cast<double>(at.task_runs);
      return;
    }
    // Moves between tasks belong to edges.
    const bool is_reduction = ops::is_collective(*at.op);
    const bool is_edge = at.graph == step_.micro && at.part != ir::Part::update && !is_reduction;
    if (!is_edge) add_to_step(at, is_reduction ? "all_reduce" : "update", cycles);
  }

  // What has no row of its kind (zeros of accumulators in front of the micro-batches) is part of
  // the update.
  void add_to_step(const ProgramOp& at, std::string_view kind, double cycles) {
    const auto row_of = [&](std::string_view wanted) {
      return std::find_if(
          report_.steps.begin(), report_.steps.end(), [&](const tasks::StepRow& row) {
            return row.ipu == at.ipu && row.kind == wanted;
          });
    };
    auto row = row_of(kind);
    if (row == report_.steps.end()) row = row_of("update");
    if (row == report_.steps.end()) return;
    out_.steps[static_cast<size_t>(row - report_.steps.begin())] +=
        cycles * static_cast<double>(at.runs);
  }

  void add(const tasks::EdgeRow& edge) {
    const tasks::TaskRow& source = report_.tasks[task_numbers_.at(edge.source)];
    const tasks::TaskRow& target = report_.tasks[task_numbers_.at(edge.target)];
    const double cycles = edge_cycles(edge, source.ipu != target.ipu, table_.target());
    out_.edges.push_back(cycles);
    const auto count = static_cast<double>(report_.micro_batches);
    if (edge.is_streaming) {
      add_error({"streaming", streaming_error}, cycles * count);
    } else {
      add_error({"edge", link_error}, cycles * count);
    }
  }

  void add_error(const device::Family& family, double cycles) {
    const std::string name(family.name);
    out_.errors[name] = family.error;
    weights_[name] += cycles;
  }

  // Errors of one family have one cause, those of several families do not.
  void write_interval() {
    double whole = 0, squares = program_error * program_error;
    for (const auto& [name, cycles] : weights_) whole += cycles;
    for (const auto& [name, cycles] : weights_) {
      const double share = whole > 0 ? cycles / whole : 0;
      squares += std::pow(share * out_.errors.at(name), 2);
    }
    const double factor = 1 + std::sqrt(squares);
    out_.interval = {1 / factor, factor};
    out_.errors["program"] = program_error;
  }

  const tasks::StepGraphs step_;
  const tasks::Report& report_;
  CostTable& table_;
  ProgramCosts out_;
  std::map<std::string, size_t> task_numbers_;
  std::map<std::string, double> weights_;  // cycles of each family, over all IPUs
  int64_t last_ipu_ = 0;
};

// Of one run of the op, or of what is in it; streams do not count.
double cycles_of(const ir::Module& module, const ir::Op& op, CostTable& table) {
  if (!ir::has_bodies(op)) {
    return is_structural(op) || is_stream(op) ? 0 : table.of(op).cycles();
  }
  double cycles = 0;
  for (const ir::Graph* body : ir::bodies_of(module, op)) {
    for (const auto& inner : body->ops) cycles += cycles_of(module, *inner, table);
  }
  const bool is_conditional = op.attrs.get_bool(ir::attr::conditional, false);
  return cycles *
         static_cast<double>(is_conditional ? 1 : op.attrs.get_int(ir::attr::count, 1));
}

}  // namespace

ProgramCosts program_costs(const ir::Module& module, const tasks::Report& report,
                           CostTable& table) {
  return Costs(module, report, table).run(module);
}

std::vector<BlockCost> block_costs(const ir::Module& module, CostTable& table) {
  std::vector<BlockCost> rows;
  for (const tasks::Block& block : tasks::blocks_of(module)) {
    BlockCost row{block.name};
    for (const ir::Op* op : block.forward) row.forward += cycles_of(module, *op, table);
    for (const ir::Op* op : block.backward) row.backward += cycles_of(module, *op, table);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace poptorch::estimate
