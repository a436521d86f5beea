// What a round of a loop shares with other rounds of it, so that several may run side by side: all
// other memory that its instructions use holds nothing from round to round.
#pragma once

#include <cstdint>
#include <vector>

#include "assemble/program.h"
#include "ir/graph.h"

namespace poptorch::assemble {

// The extents of all states and constants, in order.
std::vector<Extent> find_persistent(const ir::Module& module);

// The extents of what a loop with this body carries, in order; empty for other graphs.
std::vector<Extent> find_carried(const ir::Graph& body);

// Where the random state lies, if a round assigns it once, the state that follows; else -1.
int64_t find_rng_step(const ir::Module& module, const ir::Graph& body);

// Whether an op calls code of the user's or prints: the user sees in which order they run.
bool runs_user_code(const ir::Module& module);

}  // namespace poptorch::assemble
