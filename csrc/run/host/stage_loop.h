// A loop whose rounds are cut into tasks, and how tasks of several rounds (micro-batches, or
// iterations of the device) run at the same time.
//
// A round has a lane: memory of its own for what it computes. There it runs its tasks one after the
// other, in the order of the program. What the schedule says of pipelines (tasks/schedule.h) says
// how far apart rounds are: a worker goes through `order`, in which a task with offset o has round
// r - o after r - o - 1 and, at the same r, earlier rounds come first. All that a task waits for
// comes before it in this order, so no division of it among workers can wait for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assemble/program.h"
#include "run/host/side_loop.h"
#include "tasks/report.h"

namespace poptorch::run {

struct StageLoop {
  // How far a round has come: the number of times that it began or ended a task.
  static int64_t begin_of(size_t task) { return 2 * static_cast<int64_t>(task) + 1; }
  static int64_t end_of(size_t task) { return 2 * static_cast<int64_t>(task) + 2; }

  // Before a task, the round so many before must have come so far.
  struct Wait {
    int64_t back = 1;
    int64_t position = 0;
  };

  struct Task {
    size_t begin = 0;  // instructions of the body
    size_t end = 0;
    size_t worker = 0;  // of as many as there are IPUs
    int64_t offset = 0;
    std::vector<Wait> waits = {};
  };

  int64_t length() const { return 2 * static_cast<int64_t>(tasks.size()); }

  std::vector<Task> tasks;    // in the order of a round
  std::vector<size_t> order;  // of tasks of different rounds at the same time
  size_t ipus = 0;
  int64_t lanes = 1;
};

// The loop, or why there is none: an edge of the schedule has no room, say.
struct FoundStages {
  std::optional<StageLoop> loop;
  std::string problem;
};

// Of a program that was scheduled by the tasks (schedule/task_order.h).
FoundStages find_stages(const assemble::Program& program, const SideLoop& side,
                        const tasks::Report& report);

}  // namespace poptorch::run
