#include "ops/lowered.h"

#include <algorithm>

namespace poptorch::ops {

bool is_lowered(ir::OpName op_name) {
  static const std::vector<ir::OpName> names = {
#define LOWERED(name) ir::OpName(#name),
#include "ops/lowered.def"
#undef LOWERED
  };
  return std::find(names.begin(), names.end(), op_name) != names.end();
}

bool has_lowered(const ir::Module& module) {
  return std::any_of(module.graphs.begin(), module.graphs.end(), [](const auto& graph) {
    return std::any_of(graph->ops.begin(), graph->ops.end(),
                       [](const auto& op) { return is_lowered(op->name); });
  });
}

}  // namespace poptorch::ops
