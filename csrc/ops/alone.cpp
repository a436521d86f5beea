#include "ops/alone.h"

#include <set>
#include <vector>

namespace poptorch::ops {

bool may_run_alone(const ir::Module& module, const ir::Graph& graph) {
  std::set<const ir::Graph*> seen = {&graph};
  std::vector<const ir::Graph*> open = {&graph};
  while (!open.empty()) {
    const ir::Graph& next = *open.back();
    open.pop_back();
    for (const auto& op : next.ops) {
      if (op->name == "stream_in" || op->name == "stream_out" || op->name == "all_reduce" ||
          op->name == "assign") {
        return false;
      }
      if (op->name != "loop") continue;
      const ir::Graph* body = module.find_graph(op->attrs.get_graph("body"));
      if (body != nullptr && seen.insert(body).second) open.push_back(body);
    }
  }
  return true;
}

}  // namespace poptorch::ops
