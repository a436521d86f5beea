#include "run/host_form.h"

#include <algorithm>
#include <array>
#include <utility>

#include "run/side_loop.h"
#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr std::array<std::pair<std::string_view, HostForm>, 3> forms = {
    {{"inline", HostForm::in_turn}, {"replicas", HostForm::replicas}, {"micro", HostForm::micro}}};

int64_t rounds_of(const assemble::Program& program, int block) {
  for (const assemble::Block& one : program.blocks) {
    for (const assemble::Instruction& instruction : one.instructions) {
      const bool is_it = instruction.kind == assemble::Instruction::Kind::loop &&
                         instruction.index == block;
      if (is_it) return instruction.count;
    }
  }
  return 1;
}

// Why a form cannot be used; empty: it can.
std::string obstacle(const assemble::Program& program, HostForm form, const HostOptions& options) {
  if (form == HostForm::in_turn) return "";
  if (options.threads == 1) return "there is one thread";
  if (program.runs_user_code) return "the program calls code of the user, which runs in order";
  if (!program.checks.empty()) return "the program looks at floating-point values in order";
  if (form == HostForm::replicas) return options.replicas > 1 ? "" : "there is one replica";
  const auto loop = find_side_loop(program);
  if (!loop || rounds_of(program, loop->block) == 1) return "there is one micro-batch";
  return "";
}

int64_t parts_of(const assemble::Program& program, HostForm form, const HostOptions& options) {
  if (form == HostForm::in_turn) return 1;
  if (form == HostForm::replicas) return options.replicas;
  return rounds_of(program, find_side_loop(program)->block);
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
  if (options.asked.empty()) return {HostForm::in_turn, 1, "default"};
  const HostForm form = host_form_from_name(options.asked);
  const std::string problem = obstacle(program, form, options);
  if (!problem.empty()) return {HostForm::in_turn, 1, problem};
  const int64_t parts = parts_of(program, form, options);
  return {form, static_cast<int>(std::min<int64_t>(parts, options.threads)),
          "POPTORCH_HOST asks for it"};
}

}  // namespace poptorch::run
