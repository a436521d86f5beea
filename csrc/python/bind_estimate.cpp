// What placed programs cost on IPUs, as Python objects.
#include <memory>
#include <string>

#include "device/cost/multi_conv.h"
#include "estimate/program_costs.h"
#include "place/ipus.h"
#include "place/work_report.h"
#include "python/bind.h"
#include "python/device_values.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

using py::literals::operator""_a;

std::string location_of(const ir::SourceLocation& source) {
  return source.file.empty() ? "" : source.file + ":" + std::to_string(source.line);
}

py::dict op_row(const estimate::OpCost& row) {
  const ir::Op& op = *row.at.op;
  const ir::Value* shown = op.results.empty() ? op.operand(0) : op.result();
  const device::Cost& cost = row.cost;
  return py::dict(
      "id"_a = row.at.id, "graph"_a = row.at.graph->name, "op"_a = op.name.str(),
      "result"_a = op.results.empty() ? "" : op.result()->name,
      "shape"_a = shown == nullptr ? "" : shown->type.text(),
      "module"_a = op.source_location.module, "location"_a = location_of(op.source_location),
      "task"_a = row.at.task, "ipu"_a = row.at.ipu, "part"_a = ir::name_of(row.at.part),
      "family"_a = device::family_of(op.name).name, "runs"_a = row.at.runs,
      "runs_are_known"_a = row.at.runs_are_known, "compute"_a = cost.compute,
      "exchange"_a = cost.exchange, "sync"_a = cost.sync, "flops"_a = row.flops,
      "utilisation"_a = row.utilisation, "always_bytes"_a = cost.always_bytes,
      "temporary_bytes"_a = cost.temporary_bytes, "is_bound"_a = cost.is_bound,
      "plan"_a = cost.plan);
}

py::list task_rows(const estimate::ProgramCosts& costs) {
  py::list rows;
  for (const estimate::TaskCost& task : costs.tasks) {
    rows.append(py::dict("name"_a = task.name, "cycles"_a = task.cycles,
                         "ahead_cycles"_a = task.ahead_cycles));
  }
  return rows;
}

py::list host_rows(const estimate::ProgramCosts& costs) {
  py::list rows;
  for (const estimate::TaskCost& task : costs.tasks) {
    rows.append(py::dict("task"_a = task.name, "in_cycles"_a = task.in_cycles,
                         "out_cycles"_a = task.out_cycles));
  }
  return rows;
}

py::list edge_rows(const estimate::ProgramCosts& costs, const tasks::Report& report) {
  py::list rows;
  for (size_t i = 0; i < costs.edges.size(); ++i) {
    const tasks::EdgeRow& edge = report.edges[i];
    rows.append(py::dict("source"_a = edge.source, "target"_a = edge.target,
                         "memory"_a = edge.is_streaming ? "streaming" : "chip",
                         "depth"_a = edge.depth, "cycles"_a = costs.edges[i]));
  }
  return rows;
}

py::list step_rows(const estimate::ProgramCosts& costs, const tasks::Report& report) {
  py::list rows;
  for (size_t i = 0; i < costs.steps.size(); ++i) {
    rows.append(py::dict("ipu"_a = report.steps[i].ipu, "kind"_a = report.steps[i].kind,
                         "cycles"_a = costs.steps[i]));
  }
  return rows;
}

py::dict dict_of(const estimate::ProgramCosts& costs, const tasks::Report& report,
                 const device::Target& target) {
  py::list ops;
  for (const estimate::OpCost& row : costs.ops) ops.append(op_row(row));
  py::dict errors;
  for (const auto& [family, error] : costs.errors) errors[py::str(family)] = error;
  return py::dict("target"_a = target.name, "clock_hz"_a = target.clock_hz,
                  "tiles"_a = target.tiles, "tile_bytes"_a = target.tile_bytes, "ops"_a = ops,
                  "tasks"_a = task_rows(costs), "edges"_a = edge_rows(costs, report),
                  "host"_a = host_rows(costs), "steps"_a = step_rows(costs, report),
                  "host_call_cycles"_a = costs.host_call_cycles,
                  "sync_cycles"_a = costs.sync_cycles, "error"_a = errors,
                  "interval"_a = py::make_tuple(costs.interval.first, costs.interval.second),
                  "distinct_ops"_a = costs.distinct);
}

estimate::CostTable table_of(ir::Module& module, const py::object& target,
                             const py::dict& settings) {
  const device::Target machine = target_from(target);
  const int64_t ipus = place::ipus_used(module);
  const auto settings_of = [&settings, ipus](int64_t ipu) {
    device::Settings out = settings_from(settings, ipu);
    out.ipus = ipus;
    return out;
  };
  device::share_tiles(module, machine, settings_of);
  estimate::mark_summed(module);
  return {machine, settings_of};
}

py::dict program_costs(const std::string& text, const py::object& target,
                       const py::dict& settings) try {
  const std::unique_ptr<ir::Module> module = place::parse_placed(text);
  const tasks::Report report = tasks::report(*module);
  estimate::CostTable table = table_of(*module, target, settings);
  return dict_of(estimate::program_costs(*module, report, table), report, table.target());
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

py::list block_costs(const std::string& text, const py::object& target,
                     const py::dict& settings) try {
  const std::unique_ptr<ir::Module> module = place::parse_placed(text);
  estimate::CostTable table = table_of(*module, target, settings);
  py::list rows;
  for (const estimate::BlockCost& block : estimate::block_costs(*module, table)) {
    rows.append(py::dict("name"_a = block.name, "forward"_a = block.forward,
                         "backward"_a = block.backward));
  }
  return rows;
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

}  // namespace

void bind_estimate(py::module_& module) {
  module.def("program_costs", &program_costs, py::arg("text"), py::arg("target"),
             py::arg("settings") = py::dict(),
             "Cycles of one step of a placed program: of its ops, tasks, transfers and updates.");
  module.def("block_costs", &block_costs, py::arg("text"), py::arg("target"),
             py::arg("settings") = py::dict(),
             "Cycles of one micro-batch by block, from the text of a program that is not placed.");
}

}  // namespace poptorch::python
