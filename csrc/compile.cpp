#include "compile.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include "assemble/assemble.h"
#include "assemble/lanes.h"
#include "ir/constants_file.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "lower/cpu/pipeline.h"
#include "ops/op_def.h"
#include "place/ipus.h"
#include "place/place.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "planned.h"
#include "rewrite/pipeline.h"
#include "schedule/schedule.h"
#include "support/error.h"
#include "support/memory/heap.h"
#include "support/settings/switches.h"
#include "tasks/check.h"
#include "tasks/cut.h"
#include "tasks/recompute.h"
#include "tasks/schedule.h"

namespace poptorch {

namespace {

constexpr int step_count = 6;

// What happens between the steps: the module is verified, printed, dumped and, when asked, replaced
// by its parsed text.
class Steps {
 public:
  Steps(ir::Module& module, const CompileOptions& options, const Progress& progress)
      : module_(module), options_(options), progress_(progress) {
    if (!options.dump_folder.empty()) std::filesystem::create_directories(options.dump_folder);
  }

  void run(const char* name, const auto& step) {
    if (progress_) progress_(done_, step_count, name);
    const auto start = std::chrono::steady_clock::now();
    step();
    const auto time = std::chrono::steady_clock::now() - start;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    reports_.step_times_ns.emplace_back(name, ns);
    ++done_;
  }

  // `number`: of the step among the nine.
  void between(int number, const char* name, ir::Level level) {
    ir::verify(module_, level);
    const bool is_printed = options_.keep_text || options_.reload_ir || is_dumped();
    if (!is_printed) return;
    std::string text = ir::print(module_);
    dump(concat(number, "_", name), text);
    reload(text);
    if (options_.keep_text) reports_.texts.emplace_back(name, std::move(text));
  }

  // The passes of a step. Those of steps before count for the limit and in the numbers of files.
  void run_passes(int number, const char* name, const auto& step) {
    run(name, [&] {
      passes_.limit = options_.pass_limit;
      passes_.done = step(module_, passes_, [&](const rewrite::PassDone& done, ir::Module&) {
        after_pass(number, name, done);
      });
    });
  }

  Reports& reports() { return reports_; }
  Reports take() { return std::move(reports_); }

 private:
  void after_pass(int number, const char* name, const rewrite::PassDone& done) {
    if (!is_dumped() && !options_.reload_ir) return;
    const std::string text = ir::print(module_);
    std::ostringstream file;
    file << number << "_" << name << "." << std::setw(2) << std::setfill('0') << done.number << "_"
         << done.pass;
    dump(file.str(), done.changed ? text : "// (unchanged)\n");
    reload(text);
  }

  bool is_dumped() const { return !options_.dump_folder.empty(); }

  void dump(const std::string& name, const std::string& text) const {
    if (!is_dumped()) return;
    const auto path = std::filesystem::path(options_.dump_folder) / (name + ".ir");
    std::ofstream file(path);
    file << text;
    USER_CHECK(file.good(), "[compile] cannot write ", path.string(),
               ". Check the folder that POPTORCH_DUMP_IR names.");
    if (text.find("hash=") == std::string::npos) return;
    ir::save_constants(module_, std::filesystem::path(path).replace_extension("safetensors"));
  }

  void reload(const std::string& text) {
    if (options_.reload_ir) module_ = std::move(*ir::parse(text, &module_));
  }

  ir::Module& module_;
  const CompileOptions& options_;
  const Progress& progress_;
  Reports reports_;
  rewrite::PassOptions passes_;
  int done_ = 0;
};

// What runs or looks in the order of the program keeps it.
bool groups_tasks(const ir::Module& module, const CompileOptions& options) {
  return run::runs_tasks(options.host) && !options.check_floats && !options.record_floats &&
         !assemble::runs_user_code(module);
}

bool has_lowered(const ir::Module& module) {
  return std::any_of(module.graphs.begin(), module.graphs.end(), [](const auto& graph) {
    return std::any_of(graph->ops.begin(), graph->ops.end(),
                       [](const auto& op) { return !ops::lowered_part(*op).empty(); });
  });
}

// The steps up to "place".
void to_placed(Steps& steps, ir::Module& module, const CompileOptions& options) {
  // A text may have been lowered in part; no step of ours does that before its turn.
  const bool is_raw = has_lowered(module);
  steps.between(2, "translate", is_raw ? ir::Level::any : ir::Level::translated);

  steps.run_passes(3, "rewrite", rewrite::rewrite);
  steps.between(3, "rewrite", is_raw ? ir::Level::any : ir::Level::translated);

  steps.run("place", [&] {
    steps.reports().shares = place::place(module);
    place::check_ipus(module, {options.replicas, options.max_ipus, options.power_of_two_ipus});
    if (options.cut_tasks) tasks::cut(module);
    tasks::recompute(module);
    tasks::schedule(module);
    tasks::check(module);
  });
  steps.between(4, "place", is_raw ? ir::Level::lowered : ir::Level::placed);
}

}  // namespace

std::string placed_text(ir::Module& module, const CompileOptions& asked,
                        const Progress& progress) {
  const CompileOptions options = complete(asked);
  const SettingsScope scope(&options.settings);
  check_switches();
  Steps steps(module, options, progress);
  to_placed(steps, module, options);
  return ir::print(module);
}

std::unique_ptr<Compiled> compile(std::unique_ptr<ir::Module> module, const CompileOptions& asked,
                                  const Progress& progress, const Placed& placed) try {
  const CompileOptions options = complete(asked);
  const SettingsScope scope(&options.settings);
  check_switches();
  Steps steps(*module, options, progress);
  to_placed(steps, *module, options);
  if (placed) placed(place::ipus_used(*module));

  // The CPU runs one program, in which the forms that run tasks have their ops together.
  if (groups_tasks(*module, options)) steps.reports().tasks = tasks::report(*module);
  tasks::inline_tasks(*module);
  steps.run_passes(5, "lower", lower::cpu::lower);
  steps.between(5, "lower", ir::Level::lowered);

  steps.run("schedule", [&] {
    const std::optional<tasks::Report>& tasks = steps.reports().tasks;
    schedule::schedule(*module, tasks ? &*tasks : nullptr);
  });
  steps.between(6, "schedule", ir::Level::scheduled);

  plan::PreparedOps prepared;
  steps.run("plan", [&] { prepared = plan::plan(*module, {options.threads}); });
  steps.between(7, "plan", ir::Level::planned);
  if (options.check_plan) plan::check(*module);
  if (options.reload_ir) prepared.clear();  // its ops are gone
  give_back_freed_memory();  // of dry runs: the arena is made next

  assemble::Program program;
  steps.run("assemble", [&] {
    program = assemble::assemble(*module, assemble_options(options), std::move(prepared));
  });
  return make_executable(*module, std::move(program), options, steps.take());
} catch (const InternalError& error) {
  constexpr const char* request = "Please report this";
  const std::string words = error.what();
  if (words.find(request) != std::string::npos) throw;
  throw InternalError(words, concat("\n", request, " with the dump of POPTORCH_DUMP_IR."));
}

}  // namespace poptorch
