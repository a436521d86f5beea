// Which op belongs to which task, and in which order the tasks run.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace poptorch::tasks {

struct Task {
  std::string name;  // of the body, after that of the graph: `s0`, `s0.back`
  std::string part;  // forward, backward or both
  int64_t ipu = 0;
  int64_t stage = 0;
  int64_t phase = -1;  // -1: the program has no phases

  bool is_backward() const { return part == "backward"; }
};

struct Groups {
  std::vector<Task> tasks;  // in the order in which one micro-batch goes through them
  std::unordered_map<const ir::Op*, size_t> task_of;
  // Made in each task that reads it: constants, states that no task assigns, cheap ops of these.
  std::unordered_set<const ir::Op*> everywhere;
  // Moves that stay in the graph, for other tasks, and are in this task, too, which reads what it
  // stored itself.
  std::unordered_map<const ir::Op*, size_t> also_in;
  bool is_in_turn = false;  // stages depend on each other in a cycle: several tasks for a stage

  // -1: the op stays in the graph.
  int64_t find(const ir::Op& op) const {
    const auto found = task_of.find(&op);
    return found == task_of.end() ? -1 : static_cast<int64_t>(found->second);
  }
};

// How the tasks of a graph follow each other.
struct Order {
  bool is_pipelined = false;   // several micro-batches at the same time
  bool splits_last = false;    // forward and backward of the last stage are two tasks
};

// Fewer than two tasks where the graph is that of one stage.
Groups groups_of(const ir::Module& module, const ir::Graph& graph, const Order& order);

// Whether the graph has the update of the weights too.
bool has_update(const ir::Graph& graph);

// The value that an op of another IPU reads by a copy.
const ir::Value* uncopied(const ir::Value* value);

}  // namespace poptorch::tasks
