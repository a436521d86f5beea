// Which graphs one replica can run without the others.
#pragma once

#include "ir/graph.h"

namespace poptorch::ops {

// Whether a graph, with those that it runs, may run any number of times for one replica alone: it
// has no streams and reductions over replicas, and binds no states.
bool may_run_alone(const ir::Module& module, const ir::Graph& graph);

}  // namespace poptorch::ops
