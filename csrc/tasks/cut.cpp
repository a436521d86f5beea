#include "tasks/cut.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "place/place.h"
#include "support/error.h"
#include "tasks/groups.h"
#include "tasks/schedule.h"
#include "tasks/wiring.h"

namespace poptorch::tasks {

namespace {

// A graph, and the loop that runs it; nullptr: no loop does.
struct Found {
  ir::Graph* graph = nullptr;
  ir::Op* loop = nullptr;
};

bool has_streams(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const auto& op) {
    return op->name == ir::op::stream_in || op->name == ir::op::stream_out;
  });
}

bool has_forward(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const auto& op) {
    return ir::runs_on_ipu(op->name) && !place::is_source(*op) &&
           ir::part_of(*op) == ir::Part::forward;
  });
}

// Inside of the loops over device iterations and micro-batches. Loops of the model have no streams.
Found find_micro(const ir::Module& module) {
  Found found{module.find_graph("main")};
  while (found.graph != nullptr) {
    const bool is_last = has_forward(*found.graph);
    const auto next = std::find_if(
        found.graph->ops.begin(), found.graph->ops.end(), [&](const auto& op) {
          return op->name == ir::op::loop && (!is_last || has_streams(ir::body_of(module, *op)));
        });
    if (next == found.graph->ops.end()) return found;
    found = {&ir::body_of(module, **next), next->get()};
  }
  return found;
}

std::string schedule_of(const ir::Op& strategy, bool is_pipelined) {
  if (!is_pipelined) return "sequential";
  const std::string schedule =
      std::get<std::string>(ops::attr_of(strategy, ir::attr::schedule).value);
  std::string names;
  for (const std::string_view known : schedule_names()) {
    if (known == schedule) return schedule;
    names += concat(names.empty() ? "" : ", ", known);
  }
  throw_user_error(concat("[place] there is no schedule \"", schedule, "\". It is one of ", names,
                          "."));
}

}  // namespace

void cut(ir::Module& module) {
  ir::Op* strategy = place::find_strategy(module);
  if (strategy == nullptr) return;  // all is at one place
  const Found found = find_micro(module);
  const bool is_pipelined = strategy->attrs.get_string(ir::attr::kind) == "pipelined";
  std::string schedule = schedule_of(*strategy, is_pipelined);
  const Groups groups = groups_of(module, *found.graph,
                                  {schedule != "sequential", schedule == "fill_drain"});
  if (groups.tasks.size() < 2) return;
  if (groups.is_in_turn) schedule = "sequential";
  if (groups.is_in_turn && is_pipelined) strategy->attrs.set(ir::attr::cyclic, true);
  Wiring(module, *found.graph, groups, is_pipelined && !groups.is_in_turn).run();
  if (found.loop != nullptr) found.loop->attrs.set(ir::attr::pipeline, schedule);
}

}  // namespace poptorch::tasks
