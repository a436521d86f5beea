// Which states the graphs of a module read and write, bodies of ops included.
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

// By graph, the bodies of its ops included.
using StateUses = std::unordered_map<const ir::Graph*, StateUse>;
StateUses state_uses(const ir::Module& module);

}  // namespace poptorch::schedule
