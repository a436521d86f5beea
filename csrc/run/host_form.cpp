#include "run/host_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "run/host_cost.h"
#include "run/memory_limit.h"
#include "run/side_loop.h"
#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr std::array<std::pair<std::string_view, HostForm>, 3> forms = {
    {{"inline", HostForm::in_turn}, {"replicas", HostForm::replicas}, {"micro", HostForm::micro}}};

// Why a form cannot be used; empty: it can.
std::string obstacle(const assemble::Program& program, HostForm form, const HostOptions& options) {
  if (form == HostForm::in_turn) return "";
  if (options.threads == 1) return "there is one thread";
  if (program.runs_user_code) return "the program calls code of the user, which runs in order";
  if (!program.checks.empty()) return "the program looks at floating-point values in order";
  if (form == HostForm::replicas) return options.replicas > 1 ? "" : "there is one replica";
  const auto loop = find_side_loop(program);
  if (!loop) return "no loop of the program has rounds without an all_reduce";
  if (rounds_of(program, loop->block) == 1) return "there is one micro-batch";
  return "";
}

int64_t parts_of(const assemble::Program& program, HostForm form, const HostOptions& options) {
  if (form == HostForm::in_turn) return 1;
  if (form == HostForm::replicas) return options.replicas;
  return rounds_of(program, find_side_loop(program)->block);
}

HostPlan plan_of(const assemble::Program& program, HostForm form, const HostOptions& options,
                 const std::string& reason) {
  if (form == HostForm::in_turn) return {form, 1, reason, 0};
  const int64_t parts = parts_of(program, form, options);
  const int workers = static_cast<int>(std::min<int64_t>(parts, options.threads));
  const HostCost cost = cost_of(program, form, options, workers);
  return {form, workers, reason, static_cast<int64_t>(cost.extra_bytes)};
}

// In turn unless another form gains much: estimates may be wrong by as much.
HostPlan fastest(const assemble::Program& program, const HostOptions& options) {
  constexpr double least_gain = 1.4, least_ns_in_turn = 2'000'000, most_library = 0.1;
  constexpr double most_memory = 0.25;  // of what the process may have
  HostPlan best{HostForm::in_turn, 1, "no other form is estimated to be much faster", 0};
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

HostPlan plan_host(const assemble::Program& program, const HostOptions& options) {
  if (options.asked.empty()) return fastest(program, options);
  const HostForm form = host_form_from_name(options.asked);
  const std::string problem = obstacle(program, form, options);
  if (!problem.empty()) return {HostForm::in_turn, 1, problem, 0};
  return plan_of(program, form, options, "POPTORCH_HOST asks for it");
}

}  // namespace poptorch::run
