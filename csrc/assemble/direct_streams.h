// Which streamed values need no copy: kernels read an input where the user's memory has it, and
// write an output right into the user's memory. Such a value keeps its planned address, which
// is used when a step's slice is not returned; the engine points the instructions that use it
// elsewhere for a step.
#pragma once

#include <unordered_map>

#include "ir/graph.h"

namespace poptorch::assemble {

// The stream op of each value of the graph that is direct. Left out is what must lie at its planned
// address: values that a loop carries, that become a state, or that leave the graph; and all but
// the first stream_out of a value.
std::unordered_map<const ir::Value*, const ir::Op*> direct_streams(const ir::Graph& graph);

}  // namespace poptorch::assemble
