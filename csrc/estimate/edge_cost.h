// What passes between tasks: the cycles of one micro-batch.
#pragma once

#include "device/target.h"
#include "tasks/report.h"

namespace poptorch::estimate {

// `crosses`: the tasks are on different IPUs.
//
// - Between IPUs: one exchange of all tensors over the links that join neighbours.
// - Through streaming memory: a store and a load of each tensor.
// - On one IPU, kept for several micro-batches (a stash): a copy into the stash and one out of it,
//   of each tensor. What is read where it lies costs nothing.
double edge_cycles(const tasks::EdgeRow& edge, bool crosses, const device::Target& target);

// All of so many IPUs wait for each other: 1 + ipus / 4 hops on the ladder that they form.
double meeting_cycles(int64_t ipus, const device::Target& target);

}  // namespace poptorch::estimate
