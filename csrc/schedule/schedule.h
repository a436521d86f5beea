// Step 6: the order in which the ops of each graph run, written as `order` (position in its graph).
//
// Program order is kept, for autograd's is good, but
//   - what costs nothing (states, constants, fills, views, small ops on those) runs right before
//     its first user, so that its memory is live for a short time;
//   - what consumes a gradient (accumulate, all_reduce, optimizer updates), `assign` and
//     `stream_out` run as soon as they can, so that what they consume dies;
//   - a gradient more than twice as large as what waits in its stead runs right before its first
//     user, when that is on the same IPU, in the same stage and phase [`alap_gradients`];
//   - an op whose result replaces a state in place runs after the other readers of that state.
//
// `assign` runs after all reads of its state, those in the bodies of loops included.
#pragma once

#include "ir/graph.h"
#include "tasks/report.h"

namespace poptorch::schedule {

// Reorders the ops of every graph and writes `order`. Takes about linear time; deterministic. With
// `tasks`, what a graph was cut into, the ops of each task stand together, and have its number in
// `task` (schedule/task_order.h).
void schedule(ir::Module& module, const tasks::Report* tasks = nullptr);

// Writes `order` again after ops were inserted.
void number(ir::Graph& graph);

}  // namespace poptorch::schedule
