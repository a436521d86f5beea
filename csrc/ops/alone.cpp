#include "ops/alone.h"

#include <set>
#include <vector>

#include "ir/bodies.h"
#include "ops/op_def.h"

namespace poptorch::ops {

bool may_run_alone(const ir::Module& module, const ir::Graph& graph) {
  std::set<const ir::Graph*> seen = {&graph};
  std::vector<const ir::Graph*> open = {&graph};
  while (!open.empty()) {
    const ir::Graph& next = *open.back();
    open.pop_back();
    for (const auto& op : next.ops) {
      if (op->name == ir::op::stream_in || op->name == ir::op::stream_out ||
          op->name == ir::op::assign || is_collective(*op)) {
        return false;
      }
      for (const std::string& name : ir::body_names(*op)) {
        const ir::Graph* body = module.find_graph(name);  // nullptr: not verified yet
        if (body != nullptr && seen.insert(body).second) open.push_back(body);
      }
    }
  }
  return true;
}

}  // namespace poptorch::ops
