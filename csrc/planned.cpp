#include "planned.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/constants_file.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "place/ipus.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "support/error.h"
#include "support/process.h"
#include "support/settings/switches.h"

namespace poptorch {

namespace {

// All that POPTORCH_OFF can name.
std::vector<Switch> optimizations() {
  std::vector<Switch> all = all_switches();
#define PASS(name, off_for, doc) all.push_back({#name, OffFor::off_for, doc});
#include "rewrite/passes.def"
#include "lower/cpu/passes.def"
#undef PASS
  return all;
}

bool turns_off(const CompileOptions& options, OffFor reason) {
  switch (reason) {
    case OffFor::nothing: return false;
    case OffFor::checks: return options.check_floats || options.record_floats;
    case OffFor::recording: return options.record_floats;
    case OffFor::determinism: return options.deterministic;
  }
  throw_internal_error(__FILE__, __LINE__, "reason", "not an OffFor");
}

// Of a program that was planned elsewhere.
std::optional<tasks::Report> tasks_of(const Reports& known, const CompileOptions& options) {
  if (!run::runs_tasks(options.host)) return std::nullopt;
  for (const auto& [step, text] : known.texts) {
    if (step == "place") return tasks::report(text);
  }
  return std::nullopt;
}

// As the last text that of the module, which may be there as it was before it changed.
void keep_planned(std::vector<std::pair<std::string, std::string>>& texts,
                  const ir::Module& module, bool is_changed) {
  const bool is_there = !texts.empty() && texts.back().first == "plan";
  if (is_there && !is_changed) return;
  if (is_there) texts.pop_back();
  texts.emplace_back("plan", ir::print(module));
}

}  // namespace

CompileOptions CompileOptions::from_environment() {
  CompileOptions options;
  options.settings = Settings::from_environment();
  options.dump_folder = environment_variable("POPTORCH_DUMP_IR");
  options.reload_ir = environment_variable("POPTORCH_RELOAD_IR") == "1";
  options.poison = environment_variable("POPTORCH_POISON") == "1";
  options.host = environment_variable("POPTORCH_HOST");
  const std::string limit = environment_variable("POPTORCH_PASS_LIMIT");
  if (!limit.empty()) {
    char* end = nullptr;
    options.pass_limit = static_cast<int>(std::strtol(limit.c_str(), &end, 10));
    USER_CHECK(*end == '\0', "[compile] POPTORCH_PASS_LIMIT is \"", limit,
               "\", not a number. Give the number of passes to run.");
  }
  return options;
}

const std::string& Compiled::ir(std::string_view step) const {
  std::string names;
  for (const auto& [name, text] : reports.texts) {
    if (name == step) return text;
    names += concat(names.empty() ? "" : ", ", name);
  }
  throw_user_error(concat("[compile] there is no IR text of step \"", step, "\". Steps with text: ",
                          names.empty() ? "none" : names, "."));
}

std::string Compiled::constants() const {
  std::map<int64_t, const std::byte*> known;
  for (const assemble::Constant& constant : engine().program().constants) {
    known[constant.addr] = constant.bytes.data();
  }
  const std::unique_ptr<ir::Module> module = ir::parse(ir("plan"));
  for (const ir::Op* op : module->all_ops()) {
    if (op->name != ir::op::constant || !op->attrs.has(ir::attr::hash)) continue;
    const std::string& hash = op->attrs.get_string(ir::attr::hash);
    const std::string found =
        module->add_constant(op->result()->type, known.at(op->attrs.get_int(ir::attr::addr)));
    INTERNAL_CHECK(found == hash, "[compile] constant ", hash, " has hash ", found, " in memory");
  }
  return ir::pack_constants(*module);
}

const Counts& Compiled::counts() const {
  std::call_once(is_counted_, [&] {
    const std::unique_ptr<ir::Module> module = ir::parse(ir("plan"));
    counts_.memory_bytes = plan::memory_report(*module);
    counts_.ops = assemble::op_report(*module);
    counts_.algorithms = assemble::op_report(*module, true);
    if (reports.host.bytes > 0) counts_.memory_bytes["workers"] = reports.host.bytes;
  });
  return counts_;
}

CompileOptions complete(CompileOptions options) {
  for (const Switch& one : optimizations()) {
    if (turns_off(options, one.off_for)) options.settings.off.emplace_back(one.name);
  }
  return options;
}

void check_switches() {
  for (const std::string& name : settings().off) {
    std::string names;
    bool is_known = false;
    for (const Switch& known : optimizations()) {
      is_known = is_known || known.name == name;
      names += concat(names.empty() ? "" : ", ", known.name);
    }
    USER_CHECK(is_known, "[compile] POPTORCH_OFF names \"", name,
               "\", which turns nothing off. The names are: ", names, ".");
  }
}

assemble::AssembleOptions assemble_options(const CompileOptions& options) {
  return {options.threads, options.poison, options.check_floats || options.record_floats};
}

std::unique_ptr<Compiled> make_executable(const ir::Module& module, assemble::Program program,
                                          const CompileOptions& options, Reports reports) {
  reports.ipus = place::ipus_used(module);
  reports.host = run::plan_host(program, {options.host, options.replicas, options.threads,
                                          reports.tasks ? &*reports.tasks : nullptr});
  run::EngineOptions engine{options.replicas, options.poison,
                            options.record_floats && !options.check_floats,
                            options.input_group_size, options.orthogonal_input_groups};
  engine.form = reports.host.form;
  engine.workers = reports.host.workers;
  engine.lanes = reports.host.lanes;
  engine.stages = reports.host.stages;
  return std::make_unique<Compiled>(std::move(program), engine, std::move(reports));
}

// A text that breaks a rule is at fault itself: no step of ours made it.
std::unique_ptr<Compiled> compile_planned(std::unique_ptr<ir::Module> module,
                                          const CompileOptions& asked, Reports known,
                                          bool is_proved) try {
  const CompileOptions options = complete(asked);
  const SettingsScope scope(&options.settings);
  check_switches();
  if (!is_proved) ir::verify(*module, ir::Level::planned);
  if (options.check_plan && !is_proved) plan::check(*module);
  bool is_changed = false;
  plan::PreparedOps prepared = plan::prepare(*module, {options.threads}, is_changed);
  known.tasks = tasks_of(known, options);
  if (options.keep_text) keep_planned(known.texts, *module, is_changed);
  assemble::Program program =
      assemble::assemble(*module, assemble_options(options), std::move(prepared));
  return make_executable(*module, std::move(program), options, std::move(known));
} catch (const InternalError& error) {
  throw BrokenText(error.rule);
}

}  // namespace poptorch
