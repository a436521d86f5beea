// Pipeline schedules: when each task handles which micro-batch.
//
// A schedule is one number for each task. In round r a task with offset o handles micro-batch
// r - o, if that is one of 0..m-1. Within a round an IPU runs its tasks in the order of the text.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace poptorch::tasks {

// The names that the attribute `schedule` of the op `strategy`, and `pipeline` of a loop, may have.
std::vector<std::string_view> schedule_names();

// Writes `offset` on each task and, on each op that holds values between two tasks (ipu_copy,
// stash, remote_store), `depth`: for how many micro-batches it needs room. It reads the attribute
// `pipeline` and the count of the loop around the tasks. Without that attribute each round of the
// loop is a step of its own: tasks run one after the other. A user error for a name that is not a
// schedule.
void schedule(ir::Module& module);

}  // namespace poptorch::tasks
