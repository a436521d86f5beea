// Step 7: an address for each value of a scheduled module. One arena, in bytes from its start.
//
//   %1 = relu %0 {order=4}  =>  %1 = relu %0 {addr=40832, inplace=[0], order=4}
//
// Written on the ops, and all that the steps after it go by:
//   addr           of the result; a list for several; of an `assign`: of its state
//   inplace        for each result the operand whose memory it takes, -1: none; absent: none at all
//   scratch_addr, scratch_bytes   memory that only the op itself uses while it runs
//   algorithm      which one computes it, where there are several (support/algorithms/algorithm.h)
//
// States and constants keep their memory all the time. They come first, in the order of their
// paths; large states that are never assigned come last (plan/layout.h).
// Where values must share memory and cannot, `contiguous` ops are put in (plan/buffers.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "ir/graph.h"
#include "ops/kernel.h"

namespace poptorch::plan {

struct PlanOptions {
  int threads = 1;  // the most that a run will use: kernels size their scratch by it
};

// Kernels that were prepared to find how much scratch memory they need. Preparing may be slow (an
// opaque op makes its call once), so assemble takes these; they hold as long as the ops do.
using PreparedOps = std::unordered_map<const ir::Op*, ops::Prepared>;

PreparedOps plan(ir::Module& module, const PlanOptions& options);

// Prepares the kernels of a module that was planned elsewhere: on another processor, for another
// number of threads. Algorithms are chosen again. An op that needs more scratch memory here than
// the plan has for it still gets some, behind the arena. `is_changed`: the module says something
// else than before.
PreparedOps prepare(ir::Module& module, const PlanOptions& options, bool& is_changed);

// Bytes by category, from a planned module: parameters, buffers, optimizer_state, constants; at the
// moment when most of activations, gradients and scratch together are alive, these three and the
// streams. A value that a `stream_out` sends whole is a stream as long as it is live, as one of a
// `stream_in` is. `arena` is the block that has room for all of it at any moment, with the gaps;
// `transfers`, the bytes that one run moves between the chip and streaming memory. Beside that
// "scratch [winograd]" for each algorithm that needs scratch memory: the most that one op has.
std::map<std::string, int64_t> memory_report(const ir::Module& module);

}  // namespace poptorch::plan
