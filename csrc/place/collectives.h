// What place does to ops that work across replicas, once every op has its IPU.
#pragma once

#include "ir/graph.h"

namespace poptorch::place {

// Joins the all_reduces of the backward pass and the update that are alike: of one dtype, group and
// reduction, at one place. Those that need each other's results stay apart. No bit changes.
//
//   %r0 = all_reduce %g0 {op="mean"} : f32[4,2]
//   %r1 = all_reduce %g1 {op="mean"} : f32[2]
//       =>
//   %r0, %r1 = all_reduce %g0, %g1 {op="mean"} : f32[4,2], f32[2]
void merge_all_reduces(ir::Module& module);

// Writes on each op that cuts or joins parts the bytes that a replica receives from the others.
void write_shard_bytes(ir::Module& module);

}  // namespace poptorch::place
