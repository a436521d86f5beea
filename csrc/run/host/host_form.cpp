#include "run/host/host_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "run/host/host_cost.h"
#include "run/host/side_loop.h"
#include "run/memory/memory_limit.h"
#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr std::array<std::pair<std::string_view, HostForm>, 5> forms = {
    {{"inline", HostForm::in_turn},
     {"replicas", HostForm::replicas},
     {"micro", HostForm::micro},
     {"stages", HostForm::stages},
     {"literal", HostForm::literal}}};

std::string obstacle_to_stages(const assemble::Program& program, const SideLoop& loop,
                               const tasks::Report* tasks) {
  const assemble::Block& body = program.blocks[static_cast<size_t>(loop.block)];
  const bool has_tasks = std::any_of(body.instructions.begin(), body.instructions.end(),
                                     [](const auto& one) { return one.task >= 0; });
  if (tasks != nullptr && tasks->graph.empty()) return "the program has one stage";
  if (tasks != nullptr && tasks->micro_batches == 1) return "there is one micro-batch";
  if (tasks == nullptr || !has_tasks) return "the program was compiled for a different form";
  return find_stages(program, loop, *tasks).problem;
}

// Why a form cannot be used; empty: it can.
std::string obstacle(const assemble::Program& program, HostForm form, const HostOptions& options) {
  if (form == HostForm::in_turn) return "";
  if (options.threads == 1 && form != HostForm::literal) return "there is one thread";
  if (program.runs_user_code) return "the program calls code of the user, which runs in order";
  if (!program.checks.empty()) return "the program looks at floating-point values in order";
  if (form == HostForm::replicas) return options.replicas > 1 ? "" : "there is one replica";
  const auto loop = find_side_loop(program);
  if (!loop) return "no loop of the program has rounds without an all_reduce";
  if (rounds_of(program, loop->block) == 1) return "there is one micro-batch";
  return form == HostForm::micro ? "" : obstacle_to_stages(program, *loop, options.tasks);
}

int64_t parts_of(const assemble::Program& program, HostForm form, const HostOptions& options) {
  if (form == HostForm::in_turn) return 1;
  if (form == HostForm::replicas) return options.replicas;
  return rounds_of(program, find_side_loop(program)->block);
}

HostPlan plan_of_stages(const assemble::Program& program, HostForm form,
                        const HostOptions& options, const std::string& reason) {
  StageLoop loop = *find_stages(program, *find_side_loop(program), *options.tasks).loop;
  const auto lanes = static_cast<int>(loop.lanes), ipus = static_cast<int>(loop.ipus);
  const int workers = form == HostForm::literal ? 1 : std::min(ipus, options.threads);
  const double bytes = bytes_of_lanes(program, options, lanes);
  return {form, workers, reason, static_cast<int64_t>(bytes), lanes, std::move(loop)};
}

HostPlan plan_of(const assemble::Program& program, HostForm form, const HostOptions& options,
                 const std::string& reason) {
  if (form == HostForm::in_turn) return {form, 1, reason};
  if (form == HostForm::stages || form == HostForm::literal) {
    return plan_of_stages(program, form, options, reason);
  }
  const int64_t parts = parts_of(program, form, options);
  const int workers = static_cast<int>(std::min<int64_t>(parts, options.threads));
  const HostCost cost = cost_of(program, form, options, workers);
  return {form, workers, reason, static_cast<int64_t>(cost.extra_bytes),
          form == HostForm::micro ? workers : 1};
}

// In turn unless another form gains much: estimates may be wrong by as much.
HostPlan fastest(const assemble::Program& program, const HostOptions& options) {
  constexpr double least_gain = 1.4, least_ns_in_turn = 2'000'000, most_library = 0.1;
  constexpr double most_memory = 0.25;  // of what the process may have
  HostPlan best{HostForm::in_turn, 1, "no other form is estimated to be much faster"};
  double least_ns = 0;
  for (const HostForm form : {HostForm::replicas, HostForm::micro}) {
    if (!obstacle(program, form, options).empty()) continue;
    const HostPlan plan = plan_of(program, form, options, "");
    const HostCost cost = cost_of(program, form, options, plan.workers);
    const bool pays = cost.side_ns * least_gain < cost.in_turn_ns &&
                      cost.in_turn_ns > least_ns_in_turn &&
                      cost.library_share < most_library &&
                      cost.extra_bytes < most_memory * static_cast<double>(memory_limit());
    if (!pays || (least_ns > 0 && cost.side_ns >= least_ns)) continue;
    least_ns = cost.side_ns;
    best = plan;
    best.reason = concat("estimated to be ", std::round(10 * cost.in_turn_ns / cost.side_ns) / 10,
                         " times as fast as inline");
  }
  return best;
}

}  // namespace

HostForm host_form_from_name(std::string_view name) {
  std::string names;
  for (const auto& [known, form] : forms) {
    if (known == name) return form;
    names += concat(names.empty() ? "" : ", ", known);
  }
  throw_user_error(concat("[POPTORCH_HOST] there is no form \"", name, "\". Use one of: ", names,
                          "."));
}

std::string_view name_of(HostForm form) {
  for (const auto& [name, known] : forms) {
    if (known == form) return name;
  }
  throw_internal_error(__FILE__, __LINE__, "form", "not a HostForm");
}

bool runs_tasks(std::string_view name) { return name == "stages" || name == "literal"; }

HostPlan plan_host(const assemble::Program& program, const HostOptions& options) {
  if (options.asked.empty()) return fastest(program, options);
  const HostForm form = host_form_from_name(options.asked);
  const std::string problem = obstacle(program, form, options);
  if (!problem.empty()) return {HostForm::in_turn, 1, problem};
  return plan_of(program, form, options, "POPTORCH_HOST asks for it");
}

}  // namespace poptorch::run
