// After the cut: a backward task computes again what it would keep of its stage's forward task.
//
//   graph micro {
//     %y, %h = task %x {body=@micro.s1, ipu=1, part="forward", stage=1}
//     %h.kept = stash %h {bytes=64, ipu=1, stage=1}
//     %dx = task %dy, %h.kept {body=@micro.s1.back, ipu=1, part="backward", stage=1}
// =>
//   graph micro {
//     %y, %x.passed = task %x {body=@micro.s1, ipu=1, part="forward", stage=1}
//     %x.kept = stash %x.passed {bytes=64, ipu=1, stage=1}
//     %dx = task %dy, %x.kept {body=@micro.s1.back, ipu=1, part="backward", stage=1}
//   graph micro.s1.back {
//     %h = tanh %x {ipu=1, part="backward", position=3, recompute=1, stage=1}
//
// Kept are the inputs of the forward task, what comes from the host, results of ops marked as a
// `checkpoint`, states that the micro-batch assigns (the random state too), and results of ops that
// must not run twice. Everything else is computed again from them, by the same ops with the same
// operands: the bits are the same.
//
// An op that is computed again has the `position` of the first one, so `inline_tasks` makes them
// one op. Of what no task keeps any more, the moves to streaming memory are gone.
#pragma once

#include "ir/graph.h"

namespace poptorch::tasks {

// Does nothing unless the op `strategy` asks for it (`recomputation`) and the graph has tasks.
void recompute(ir::Module& module);

}  // namespace poptorch::tasks
