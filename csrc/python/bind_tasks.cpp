// Pipelines of tasks: schedules, their check, and what schedules and timelines are shown from; the
// work of a placed program.
#include "place/work_report.h"
#include "python/bind.h"
#include "tasks/check.h"
#include "tasks/recompute.h"
#include "tasks/report.h"
#include "tasks/schedule.h"

namespace poptorch::python {

namespace {

py::dict row_of(const tasks::TaskRow& task) {
  py::dict row;
  row["name"] = task.name;
  row["part"] = task.part;
  row["ipu"] = task.ipu;
  row["stage"] = task.stage;
  row["phase"] = task.phase;
  row["offset"] = task.offset;
  row["flops"] = task.flops;
  row["recomputed_flops"] = task.recomputed_flops;
  row["bytes_in"] = task.bytes_in;
  row["bytes_out"] = task.bytes_out;
  return row;
}

py::dict row_of(const tasks::EdgeRow& edge) {
  py::dict row;
  row["source"] = edge.source;
  row["target"] = edge.target;
  row["bytes"] = edge.bytes;
  row["depth"] = edge.depth;
  row["memory"] = edge.is_streaming ? "streaming" : "chip";
  row["stored_bytes"] = edge.stored_bytes;
  row["loads_by_io_tiles"] = edge.loads_by_io_tiles;
  row["stores_by_io_tiles"] = edge.stores_by_io_tiles;
  return row;
}

py::dict row_of(const tasks::TransferRow& transfer) {
  py::dict row;
  row["task"] = transfer.task;
  row["memory"] = transfer.is_host ? "host" : "streaming";
  row["direction"] = transfer.is_output ? "out" : "in";
  row["overlap"] = transfer.overlap;
  row["bytes"] = transfer.bytes;
  return row;
}

py::dict row_of(const tasks::StepRow& step) {
  py::dict row;
  row["ipu"] = step.ipu;
  row["kind"] = step.kind;
  row["flops"] = step.flops;
  return row;
}

template <typename Row>
py::list rows_of(const std::vector<Row>& all) {
  py::list rows;
  for (const Row& one : all) rows.append(row_of(one));
  return rows;
}

py::dict task_report(const std::string& text) {
  const tasks::Report report = tasks::report(text);
  py::dict out;
  out["schedule"] = report.schedule;
  out["sync"] = report.sync;
  out["micro_batches"] = report.micro_batches;
  out["tasks"] = rows_of(report.tasks);
  out["edges"] = rows_of(report.edges);
  out["transfers"] = rows_of(report.transfers);
  out["steps"] = rows_of(report.steps);
  return out;
}

py::list block_report(const std::string& text) {
  py::list rows;
  for (const tasks::BlockRow& block : tasks::block_report(text)) {
    py::dict row;
    row["name"] = block.name;
    row["forward"] = block.forward;
    row["backward"] = block.backward;
    rows.append(row);
  }
  return rows;
}

py::dict work_report(const std::string& text) {
  py::dict phases;
  for (const auto& [phase, ops] : place::work_report(text)) {
    py::dict rows;
    for (const auto& [op, work] : ops) {
      py::dict row;
      row["flops"] = whole(work.flops);
      row["bytes"] = whole(work.bytes);
      row["count"] = whole(work.count);
      rows[py::str(op)] = row;
    }
    phases[py::str(phase)] = rows;
  }
  return phases;
}

}  // namespace

void bind_tasks(py::module_& module) {
  module.def("work_report", &work_report, py::arg("text"),
             "FLOPs, bytes and count of ops of a placed program's text, by phase and op.");
  module.def("recompute_tasks", &tasks::recompute, py::arg("module"),
             "Backward tasks compute again what they would keep of forward tasks.");
  module.def("schedule_tasks", &tasks::schedule, py::arg("module"),
             "Writes the offsets of tasks and the depths of what passes between them.");
  module.def("check_tasks", &tasks::check, py::arg("module"),
             "Fails when offsets and depths do not make a pipeline that computes and ends.");
  module.def("task_report", &task_report, py::arg("text"),
             "Tasks, edges and work of a placed program's text.");
  module.def("block_report", &block_report, py::arg("text"),
             "FLOPs of each block, from the text of a program that is not placed yet.");
}

}  // namespace poptorch::python
