// Removes what comes into a graph from outside and is not used: values that a loop only carries for
// themselves, streams and states that are not read, and loops of whose results and effects there
// are none. Carried values that the body hands on unchanged are read from outside the loop.
//
//   graph main {
//     %0:2 -> loop %a, %b {body=@body}         graph main {
//     output %0                                  %0 = loop %a {body=@body}
//   }                                            output %0
//   graph body {                               }
//     %a = input {index=0} : f32[4]        =>  graph body {
//     %b = input {index=1} : f32[4]              %a = input {index=0} : f32[4]
//     %1 = relu %a : f32[4]                      %1 = relu %a : f32[4]
//     %2 = relu %b : f32[4]                      output %1
//     output %1, %2                            }
//   }
#include <algorithm>
#include <set>

#include "ir/bodies.h"
#include "rewrite/edit.h"
#include "rewrite/pass.h"

namespace poptorch::rewrite {

namespace {

using ValueSet = std::unordered_set<const ir::Value*>;

struct Loop {
  ir::Op* op;
  ir::Graph* outside;
  ir::Graph* body;
  std::vector<const ir::Value*> inputs;  // of the body, by index; nullptr: it reads none
  bool shared = false;                   // another loop runs the same body

  // Whether the loop needs a carried value even if nothing reads it.
  bool needs(size_t index) const {
    return shared || (index == 0 && op->attrs.get_bool(ir::attr::conditional, false));
  }
};

// A loop-carried value of one loop.
struct Slot {
  const Loop* loop;
  size_t index;
};

// What the effects of all graphs are computed from, through loops. A carried value is live when it
// is read after the loop or by the body for something live; then what it starts from and what the
// body hands on are live too.
class Liveness {
 public:
  Liveness(const ir::Module& module, const std::vector<Loop>& loops) {
    for (const Loop& loop : loops) {
      for (size_t i = 0; i < loop.inputs.size(); ++i) {
        slots_[loop.op->result(i)].push_back({&loop, i});
        if (loop.inputs[i] != nullptr) slots_[loop.inputs[i]].push_back({&loop, i});
        if (loop.needs(i)) add(Slot{&loop, i});
      }
    }
    std::set<const ir::Graph*> bodies;
    for (const Loop& loop : loops) bodies.insert(loop.body);
    for (const auto& graph : module.graphs) {
      if (!bodies.contains(graph.get())) add(graph->outputs);
      for (const auto& op : graph->ops) {
        if (op->name != ir::op::loop && has_effects(*op)) add(op->operands);
      }
    }
    run();
  }

  bool contains(const ir::Value* value) const { return live_.contains(value); }

 private:
  void add(const std::vector<ir::Value*>& values) {
    open_.insert(open_.end(), values.begin(), values.end());
  }
  void add(const Slot& slot) {
    open_.push_back(slot.loop->op->operands[slot.index]);
    open_.push_back(slot.loop->body->outputs[slot.index]);
  }
  void run() {
    while (!open_.empty()) {
      const ir::Value* value = open_.back();
      open_.pop_back();
      if (value == nullptr || !live_.insert(value).second) continue;
      if (value->op->name != ir::op::loop) add(value->op->operands);
      const auto slots = slots_.find(value);
      if (slots == slots_.end()) continue;
      for (const Slot& slot : slots->second) add(slot);
    }
  }

  std::unordered_map<const ir::Value*, std::vector<Slot>> slots_;
  std::vector<const ir::Value*> open_;
  ValueSet live_;
};

std::vector<Loop> all_loops(const ir::Module& module) {
  std::vector<Loop> loops;
  std::unordered_map<const ir::Graph*, int> runs;
  for (const auto& graph : module.graphs) {
    for (const auto& op : graph->ops) {
      if (op->name != ir::op::loop) continue;
      Loop loop{op.get(), graph.get(), &ir::body_of(module, *op), {}};
      loop.inputs.resize(op->operands.size(), nullptr);
      for (const auto& inner : loop.body->ops) {
        if (inner->name != ir::op::input) continue;
        loop.inputs[static_cast<size_t>(inner->attrs.get_int(ir::attr::index))] = inner->result();
      }
      ++runs[loop.body];
      loops.push_back(std::move(loop));
    }
  }
  for (Loop& loop : loops) loop.shared = runs.at(loop.body) > 1;
  return loops;
}

template <typename T>
void keep_only(std::vector<T>& items, const std::vector<bool>& keep) {
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!keep[i]) continue;
    if (kept != i) items[kept] = std::move(items[i]);
    ++kept;
  }
  items.resize(kept);
}

// Removes the carried values that are not kept, and enters them into `gone`. Ops that still use
// them are left for `remove_users`. The removed results go to `removed`: they must outlive that.
void shrink(const Loop& loop, const std::vector<bool>& keep, ValueSet& gone,
            std::vector<std::unique_ptr<ir::Value>>& removed) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < keep.size(); ++i) {
    numbers.push_back((numbers.empty() ? -1 : numbers.back()) + keep[i]);
    if (keep[i]) continue;
    if (loop.inputs[i] != nullptr) gone.insert(loop.inputs[i]);
    gone.insert(loop.op->result(i));
    removed.push_back(std::move(loop.op->results[i]));
  }
  for (const auto& op : loop.body->ops) {
    if (op->name != ir::op::input || gone.contains(op->result())) continue;
    op->attrs.set(ir::attr::index,
                  numbers[static_cast<size_t>(op->attrs.get_int(ir::attr::index))]);
  }
  keep_only(loop.body->outputs, keep);
  keep_only(loop.op->operands, keep);
  keep_only(loop.op->results, keep);
  for (size_t i = 0; i < loop.op->results.size(); ++i) {
    loop.op->results[i]->index = static_cast<int>(i);
  }
}

void remove_users(ir::Graph& graph, ValueSet& gone) {
  std::unordered_set<const ir::Op*> dead;
  for (const auto& op : graph.ops) {
    bool dies = op->name == ir::op::input && gone.contains(op->result());
    for (const ir::Value* operand : op->operands) dies = dies || gone.contains(operand);
    if (!dies) continue;
    for (const auto& result : op->results) gone.insert(result.get());
    dead.insert(op.get());
  }
  erase_ops(graph, dead);
}

ValueSet used_values(const ir::Graph& graph) {
  ValueSet used(graph.outputs.begin(), graph.outputs.end());
  for (const auto& op : graph.ops) used.insert(op->operands.begin(), op->operands.end());
  return used;
}

// What the body hands on unchanged is the operand after the loop too.
bool bypass_unchanged(ir::Graph& graph, const std::vector<Loop>& loops) {
  const ValueSet used = used_values(graph);
  std::unordered_map<ir::Value*, ir::Value*> instead;
  for (const Loop& loop : loops) {
    if (loop.outside != &graph) continue;
    for (size_t i = 0; i < loop.inputs.size(); ++i) {
      ir::Value* result = loop.op->result(i);
      const bool unchanged = loop.body->outputs[i] == loop.inputs[i];
      if (unchanged && used.contains(result)) instead.emplace(result, loop.op->operands[i]);
    }
  }
  graph.replace_all(instead);
  return !instead.empty();
}

bool shrink_loops(const ir::Module& module, const std::vector<Loop>& loops) {
  const Liveness live(module, loops);
  ValueSet gone;
  std::vector<std::unique_ptr<ir::Value>> removed;
  for (const Loop& loop : loops) {
    std::vector<bool> keep;
    for (size_t i = 0; i < loop.inputs.size(); ++i) {
      keep.push_back(loop.needs(i) || live.contains(loop.op->result(i)) ||
                     live.contains(loop.inputs[i]));
    }
    if (std::find(keep.begin(), keep.end(), false) == keep.end()) continue;
    shrink(loop, keep, gone, removed);
  }
  if (removed.empty()) return false;
  for (const auto& graph : module.graphs) remove_users(*graph, gone);
  return true;
}

// The graphs that leave something behind but their outputs when they run.
std::set<std::string> graphs_with_effects(const ir::Module& module) {
  std::set<std::string> found;
  const auto acts = [&](const auto& op) {
    if (!ir::has_bodies(*op)) return has_effects(*op);
    const std::vector<std::string> bodies = ir::body_names(*op);
    return std::any_of(bodies.begin(), bodies.end(),
                       [&](const std::string& name) { return found.contains(name); });
  };
  for (size_t known = module.graphs.size() + 1; known != found.size();) {
    known = found.size();
    for (const auto& graph : module.graphs) {
      if (std::any_of(graph->ops.begin(), graph->ops.end(), acts)) found.insert(graph->name);
    }
  }
  return found;
}

// Inner loops go with the graph that has them.
void remove_unnamed_graphs(ir::Module& module) {
  for (bool changed = true; changed;) {
    std::set<std::string> named;
    for (const ir::Graph* entry : module.entries()) named.insert(entry->name);
    for (const ir::Op* op : module.all_ops()) {
      for (const std::string& body : ir::body_names(*op)) named.insert(body);
    }
    changed = std::erase_if(module.graphs,
                            [&](const auto& graph) { return !named.contains(graph->name); }) > 0;
  }
}

bool remove_idle_loops(ir::Module& module) {
  bool changed = false;
  const std::set<std::string> acting = graphs_with_effects(module);
  for (const auto& graph : module.graphs) {
    const ValueSet used = used_values(*graph);
    std::unordered_set<const ir::Op*> dead;
    for (const auto& op : graph->ops) {
      const bool is_idle =
          op->name == ir::op::loop && !op->results.empty() &&
          std::none_of(op->results.begin(), op->results.end(),
                       [&](const auto& result) { return used.contains(result.get()); }) &&
          !acting.contains(ir::body_of(module, *op).name);
      if (is_idle) dead.insert(op.get());
    }
    erase_ops(*graph, dead);
    changed = changed || !dead.empty();
  }
  if (changed) remove_unnamed_graphs(module);
  return changed;
}

bool remove_unread(ir::Graph& graph) {
  const ValueSet used = used_values(graph);
  std::unordered_set<const ir::Op*> dead;
  for (const auto& op : graph.ops) {
    const bool is_source = op->name == ir::op::stream_in || op->name == ir::op::state ||
                           op->name == ir::op::input;
    if (is_source && !used.contains(op->result())) dead.insert(op.get());
  }
  erase_ops(graph, dead);
  return !dead.empty();
}

}  // namespace

bool dead_inputs(ir::Module& module) {
  bool changed = remove_idle_loops(module);
  const std::vector<Loop> loops = all_loops(module);
  for (const auto& graph : module.graphs) changed |= bypass_unchanged(*graph, loops);
  changed |= shrink_loops(module, loops);
  for (const auto& graph : module.graphs) changed |= remove_unread(*graph);
  return changed;
}

}  // namespace poptorch::rewrite
