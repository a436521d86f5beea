// After step 4: what one micro-batch takes is cut into tasks, an op `task` for each stage and part.
//
//   graph micro {
//     %1 = relu %0 {ipu=0, stage=0}
//     %1.ipu1 = ipu_copy %1 {bytes=64, from=0, ipu=1, stage=1}
//     %2 = tanh %1.ipu1 {ipu=1, stage=1}
// =>
//   graph micro {
//     %1 = task {body=@micro.s0, ipu=0, part="forward", stage=0}
//     %1.ipu1 = ipu_copy %1 {bytes=64, from=0, ipu=1, position=1, stage=1}
//     task %1.ipu1 {body=@micro.s1, ipu=1, part="forward", stage=1}
//
// Left in the graph are its inputs and outputs, the tasks, and the moves between them: the edges.
// Each edge joins two tasks. A value that a later task of the same IPU needs is kept by a `stash`;
// in a pipeline a value for a stage further on goes from stage to stage: the tasks between take it
// and give it on. Constants, states that no task assigns and cheap
// ops of these are in each task that reads them.
//
// `position` is where an op was; `inline_tasks` restores the graph by it.
#pragma once

#include "ir/graph.h"

namespace poptorch::tasks {

// Cuts the graph that runs once for each micro-batch, where it has several stages: the body of the
// accumulation loop or, without one, the graph of the forward ops. Writes `pipeline` on the loop,
// and `cyclic` on the op `strategy` where the stages of a pipeline depend on each other in a cycle.
// A user error where a loop of the model has operations of several stages.
void cut(ir::Module& module);

// Takes back what `cut` did. An op that is in several tasks becomes one op.
void inline_tasks(ir::Module& module);

}  // namespace poptorch::tasks
