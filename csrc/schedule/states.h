// Which states the graphs of a module read and write, bodies of loops included.
#pragma once

#include <set>
#include <string>
#include <unordered_map>

#include "ir/graph.h"

namespace poptorch::schedule {

struct StateUse {
  std::set<std::string> read;
  std::set<std::string> assigned;
};

// By graph, bodies of its loops included.
using StateUses = std::unordered_map<const ir::Graph*, StateUse>;
StateUses state_uses(const ir::Module& module);

// The body graph of a loop op.
ir::Graph& body_of(const ir::Module& module, const ir::Op& loop);

// The value whose memory `value` is a view or a move of; the value itself when it is none.
ir::Value* base_of(ir::Value* value);

}  // namespace poptorch::schedule
