// Proof that a schedule is right, from the scheduled text alone and apart from the code that made
// it.
#pragma once

#include "ir/graph.h"

namespace poptorch::tasks {

// Replays the offsets and depths of each graph that is cut into tasks, for the number of
// micro-batches of its loop. An InternalError that names the tasks where
//   - a task has an offset that no schedule needs (more than micro-batches + 2 x tasks);
//   - what holds values has no depth of at least 1, or other bytes than its type;
//   - a task reads what its round does not have yet, or values would need more room than the depths
//     of what holds them give: a round runs forward tasks first, then backward tasks, IPUs side by
//     side;
//   - a task could wait for ever. Each IPU runs its tasks in the order of rounds, starts one when
//     its operands are there, and ends one when there is room for its results. The order of such
//     waits has no cycle if this ends, and then it ends however long each task takes.
// Time: for T tasks and P pairs of them that exchange values, O(m (T + P)) of about 10 ns each.
void check(const ir::Module& module);

}  // namespace poptorch::tasks
