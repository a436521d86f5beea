// How the host runs what a program repeats: its replicas, the rounds of a loop, and their tasks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "assemble/program.h"
#include "run/host/stage_loop.h"
#include "tasks/report.h"

namespace poptorch::run {

// in_turn: one after the other, with all threads in each kernel. replicas: side by side, up to the
// next all_reduce. micro: micro-batches (where there is one, iterations of the device) of one
// replica side by side; what one hands on to the next passes in their order. stages: the tasks of a
// pipeline, on a worker for each IPU. literal: the same tasks on one thread, round by round.
// Results have the same bits in each form.
enum class HostForm : uint8_t { in_turn, replicas, micro, stages, literal };

// The form that POPTORCH_HOST calls by that name; a user error that lists the names for others.
HostForm host_form_from_name(std::string_view name);
std::string_view name_of(HostForm form);
// Whether the form of that name runs tasks: the program is to be scheduled by them.
bool runs_tasks(std::string_view name);

struct HostPlan {
  HostForm form = HostForm::in_turn;
  int workers = 1;
  std::string reason;  // why this form and no other
  int64_t bytes = 0;   // of memory that the form takes in addition to the arenas of the replicas
  int lanes = 1;       // rounds of a loop that have memory of their own at the same time
  std::optional<StageLoop> stages = std::nullopt;  // of the forms that run tasks
};

struct HostOptions {
  std::string asked;  // the name of a form; empty: the one that is estimated to be the fastest
  int replicas = 1;
  int threads = 1;
  const tasks::Report* tasks = nullptr;  // that the program is scheduled by; nullptr: none
};

// How a program runs. Forms that run tasks are never chosen: they must be asked for. A form that
// does not apply to it is replaced by in_turn; `reason` says why.
HostPlan plan_host(const assemble::Program& program, const HostOptions& options);

}  // namespace poptorch::run
