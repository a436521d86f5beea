// Steps 3 to 8 in order: a translated module becomes an executable.
//
//   auto executable = compile(std::move(module), options, progress);
//   executable->write_state("fc.weight", data, bytes);
//   executable->run(host, threads);
//
// Between the steps the module is verified and printed (the text is kept, and dumped when asked).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "place/place.h"
#include "run/executable.h"
#include "run/host/host_form.h"
#include "support/settings/settings.h"
#include "tasks/report.h"

namespace poptorch {

struct CompileOptions {
  Settings settings;        // under which the program is compiled, and runs
  int threads = 1;          // the most that a run will use
  int replicas = 1;         // arenas; all_reduce works across them
  std::string dump_folder;  // POPTORCH_DUMP_IR: a text file for each step and pass; empty: none
  bool reload_ir = false;   // POPTORCH_RELOAD_IR=1: go on with the parsed text after each step
  int pass_limit = -1;      // POPTORCH_PASS_LIMIT: so many passes, then none (-1: all)
  bool poison = false;      // POPTORCH_POISON=1: dead memory is filled with NaN while running
  bool deterministic = false;  // bits do not depend on the number of threads
  bool check_floats = false;   // floating-point exceptions are errors of a run
  bool record_floats = false;  // a run records which value first is not finite
  bool check_plan = true;   // prove the plan (plan/check.h); false only in tests
  bool cut_tasks = true;    // place cuts into tasks (tasks/cut.h); false only in tests
  bool keep_text = true;    // keep the IR text of each step for Executable::ir
  int max_ipus = 0;         // IPUs over all replicas; 0: any number
  bool power_of_two_ipus = false;  // their number must be a power of two
  int input_group_size = 1;        // replicas that read the same inputs: neighbours, or
  bool orthogonal_input_groups = false;  // every n-th one where there are n groups
  std::string host;  // POPTORCH_HOST: the form to run in (run/host/host_form.h); empty: the fastest

  // The defaults, with what the environment variables named above say.
  static CompileOptions from_environment();
};

// Called before each step: how many of `total` are done, and the name of the one that comes.
using Progress = std::function<void(int done, int total, std::string_view step)>;
// Called after place, with the IPUs of one replica.
using Placed = std::function<void(int64_t ipus)>;

// What compile learned on the way: reports for the user, nothing that a run needs.
struct Reports {
  std::vector<std::pair<std::string, std::string>> texts;       // step -> IR text after it
  std::vector<std::pair<std::string, int64_t>> step_times_ns;   // step -> wall time
  int64_t ipus = 1;                                             // of one replica
  std::vector<place::Share> shares;                             // of the stages
  std::optional<tasks::Report> tasks;  // where the host may run them, see run/host/host_form.h
  run::HostPlan host;
};

// What stands in the planned text.
struct Counts {
  std::map<std::string, int64_t> memory_bytes;                // category -> bytes at the peak
  std::map<std::string, std::map<std::string, int64_t>> ops;  // phase -> op -> count
  // The same with algorithms in the names: "convolution [winograd]".
  std::map<std::string, std::map<std::string, int64_t>> algorithms;
};

// An executable with its reports.
struct Compiled : run::Executable {
  Reports reports;

  Compiled(assemble::Program program, run::EngineOptions options, Reports reports)
      : Executable(std::move(program), options), reports(std::move(reports)) {}

  // IR text after a step: translate, rewrite, place, lower, schedule, plan.
  const std::string& ir(std::string_view step) const;
  // The large constants that the planned text names, as ir::pack_constants gives them.
  std::string constants() const;
  // Made by the first call, from the text "plan".
  const Counts& counts() const;

 private:
  mutable std::once_flag is_counted_;
  mutable Counts counts_;
};

std::unique_ptr<Compiled> compile(std::unique_ptr<ir::Module> module,
                                  const CompileOptions& options, const Progress& progress = {},
                                  const Placed& placed = {});

// The text after "place", without the steps that follow: no memory is allocated for the program.
std::string placed_text(ir::Module& module, const CompileOptions& options,
                        const Progress& progress = {});

// The last step alone, for a module that is planned already (read from a file, say): what the text
// says is what runs, with kernels of this machine (plan::prepare). `known`: the texts of earlier
// steps, that of the module, and the shares, where the reader has them. `is_proved`: the module is
// what `compile` of this build made, so that neither its rules nor its plan are checked again.
std::unique_ptr<Compiled> compile_planned(std::unique_ptr<ir::Module> module,
                                          const CompileOptions& options, Reports known = {},
                                          bool is_proved = false);

}  // namespace poptorch
