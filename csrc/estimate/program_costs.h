// What one step of a placed and scheduled program costs on a target, in cycles of its clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cost/cost.h"
#include "estimate/cost_table.h"
#include "estimate/program_ops.h"
#include "tasks/report.h"

namespace poptorch::estimate {

struct OpCost {
  ProgramOp at;
  device::Cost cost;  // of one run
  double flops = 0;   // of one run, as far as they are known
  double utilisation = 0;  // FLOPs over those that the IPU's matrix units have time for
};

struct TaskCost {
  std::string name;
  double cycles = 0;  // of one micro-batch: its ops but those of streams
  double ahead_cycles = 0;  // loads of weights by the IO tiles; `cycles` has no part of them
  double in_cycles = 0;  // streams from the host, of one micro-batch
  double out_cycles = 0;
};

struct ProgramCosts {
  std::vector<OpCost> ops;
  // In the order of tasks::report, which describes them.
  std::vector<TaskCost> tasks;
  std::vector<double> edges;  // of one micro-batch
  std::vector<double> steps;
  double host_call_cycles = 0;  // of one call, however little it does
  double sync_cycles = 0;       // all IPUs of a replica wait for each other
  std::map<std::string, double> errors;  // by family, of those that the program uses
  // 90 % of the programs are expected to take between so many times the cycles that are predicted.
  std::pair<double, double> interval = {1, 1};
  int64_t distinct = 0;  // different ops that were planned
};

// Cycles of one micro-batch by block and part of the step.
struct BlockCost {
  std::string name;  // empty: ops before the first block
  double forward = 0;
  double backward = 0;
};

// The module is verified. `report` is that of the same module.
ProgramCosts program_costs(const ir::Module& module, const tasks::Report& report,
                           CostTable& table);

// Of a module before the step place: a row for each of the blocks (tasks/blocks.h).
std::vector<BlockCost> block_costs(const ir::Module& module, CostTable& table);

}  // namespace poptorch::estimate
