#include "tasks/groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "place/place.h"
#include "rewrite/edit.h"
#include "support/error.h"
#include "tasks/runs.h"

namespace poptorch::tasks {

namespace {

place::Spot spot_of(const ir::Op& op) {
  return {op.attrs.get_int(ir::attr::phase, -1), op.attrs.get_int(ir::attr::stage),
          op.attrs.get_int(ir::attr::ipu)};
}

// All ops in the bodies of an op, and in theirs.
void add_inner(const ir::Module& module, const ir::Op& op, std::vector<const ir::Op*>& found) {
  for (const ir::Graph* body : ir::bodies_of(module, op)) {
    for (const auto& inner : body->ops) {
      found.push_back(inner.get());
      add_inner(module, *inner, found);
    }
  }
}

bool is_off_chip(const ir::Op& op) { return op.attrs.get_bool(ir::attr::off_chip, false); }

std::string words_of(const ir::Op& op) {
  const place::Spot spot = spot_of(op);
  return concat(ops::report_name(op), " runs on IPU ", spot.ipu, " in stage ", spot.stage,
                ops::source_text(op.source_location));
}

// Ops that cost little compared with the ops that read their results.
bool is_cheap(const ir::Op& op) {
  return ops::is_view(op) || op.name == ir::op::cast;
}

// Values that do not change from one micro-batch to the next are made where they are read.
class Grouper {
 public:
  Grouper(const ir::Module& module, const ir::Graph& graph, const Order& order)
      : module_(module), graph_(graph), order_(order), with_update_(has_update(graph)) {}

  Groups run() {
    find_assigned();
    find_moved();
    for (const auto& op : graph_.ops) sort(*op);
    for (const auto& op : graph_.ops) {
      if (is_assigned_state(*op)) keys_[op.get()] = keys_.at(assigns_.at(path_of(*op)));
    }
    pin_copied();
    merge_stages();
    std::set<place::Spot> spots;
    for (const auto& [op, key] : keys_) spots.insert(key.spot);
    if (spots.size() < 2) return {};
    const Dependencies dependencies(graph_, keys_, groups_.everywhere);
    const std::vector<Key> runs = sequence();
    for (const auto& [op, key] : keys_) groups_.task_of[op] = index_of(runs, key);
    add_tasks(runs);
    if (!fits(dependencies)) {
      groups_.is_in_turn = true;
      add_tasks(in_turn(graph_, dependencies, keys_, groups_.task_of));
    }
    take_own_moves();
    return std::move(groups_);
  }

 private:
  static std::string path_of(const ir::Op& op) {
    const bool has_path = op.name == ir::op::state || op.name == ir::op::assign;
    return has_path ? op.attrs.get_string(ir::attr::path) : "";
  }

  bool is_assigned_state(const ir::Op& op) const {
    return op.name == ir::op::state && assigns_.contains(path_of(op));
  }

  // The update of the weights stays in the graph, with the reductions before it.
  bool is_outside(const ir::Op& op) const {
    if (!with_update_) return false;
    if (op.name == ir::op::all_reduce && rewrite::is_backward(op)) return is_reduced_.contains(&op);
    return ir::part_of(op) == ir::Part::update;
  }

  void find_assigned() {
    for (const auto& op : graph_.ops) {
      for (const ir::Value* operand : op->operands) {
        if (operand == nullptr) continue;
        const ir::Op& maker = *rewrite::unmoved(operand)->op;
        if (maker.name != ir::op::all_reduce) continue;
        if (ir::part_of(*op) == ir::Part::update) is_reduced_.insert(&maker);
      }
    }
    for (const auto& op : graph_.ops) {
      if (is_outside(*op)) continue;
      std::vector<const ir::Op*> ops = {op.get()};
      add_inner(module_, *op, ops);
      for (const ir::Op* inner : ops) {
        if (inner->name == ir::op::assign) assigns_[path_of(*inner)] = op.get();
      }
    }
  }

  void find_moved() {
    for (const auto& op : graph_.ops) {
      if (ops::is_move(*op)) moved_.insert(op->operand(0)->op);
    }
  }

  // A cheap op of values that are everywhere. One that is moved has a task from which it comes.
  bool is_cheap_everywhere(const ir::Op& op) const {
    if (!is_cheap(op) || is_outside(op) || moved_.contains(&op)) return false;
    return std::all_of(op.operands.begin(), op.operands.end(), [&](const ir::Value* operand) {
      return operand == nullptr || groups_.everywhere.contains(operand->op);
    });
  }

  bool is_everywhere(const ir::Op& op) const {
    if (op.name == ir::op::state) return !assigns_.contains(path_of(op));
    if (op.name == ir::op::remote_load) {
      return groups_.everywhere.contains(op.operand(0)->op);
    }
    if (is_cheap_everywhere(op)) return true;
    return place::is_source(op) && op.name != ir::op::input && op.name != ir::op::stream_in;
  }

  void sort(const ir::Op& op) {
    if (is_everywhere(op)) {
      groups_.everywhere.insert(&op);
      return;
    }
    const bool stays = op.name == ir::op::input || ops::is_move(op) || is_outside(op) ||
                       (!ir::runs_on_ipu(op.name) && !ir::has_bodies(op));
    if (!stays && !is_assigned_state(op)) keys_[&op] = key_of(op);
  }

  Key key_of(const ir::Op& op) const {
    if (ir::has_bodies(op)) return key_of_loop(op);
    const Key own{spot_of(op), rewrite::is_backward(op)};
    if (op.name != ir::op::stream_out && op.name != ir::op::assign) return own;
    const auto maker = keys_.find(op.operand(0)->op);
    const bool is_beside = maker != keys_.end() && maker->second.spot.ipu == own.spot.ipu;
    return is_beside ? maker->second : own;
  }

  // A loop runs on one IPU, whole.
  Key key_of_loop(const ir::Op& op) const {
    std::vector<const ir::Op*> ops;
    add_inner(module_, op, ops);
    const ir::Op* first = nullptr;
    for (const ir::Op* inner : ops) {
      if (!ir::runs_on_ipu(inner->name) || is_off_chip(*inner)) continue;
      if (first == nullptr) first = inner;
      const place::Spot a = spot_of(*first), b = spot_of(*inner);
      USER_CHECK(a.ipu == b.ipu && a.stage == b.stage,
                 "[place] a loop has operations of several stages: ", words_of(*first), "\nand ",
                 words_of(*inner), "\nPut the whole loop into one block.");
    }
    const bool is_backward = rewrite::is_backward(op);
    if (first != nullptr) return {spot_of(*first), is_backward};
    for (const ir::Value* operand : op.operands) {
      const auto maker = keys_.find(operand->op);
      if (maker != keys_.end()) return {maker->second.spot, is_backward};
    }
    return {{}, is_backward};
  }

  // What another IPU copies needs a task, too, from which it comes.
  void pin_copied() {
    for (const auto& op : graph_.ops) {
      if (op->name != ir::op::ipu_copy) continue;
      const ir::Op& maker = *op->operand(0)->op;
      if (groups_.everywhere.contains(&maker)) keys_[&maker] = {spot_of(maker), false};
    }
  }

  // Stages that follow each other on one IPU are one.
  void merge_stages() {
    std::map<place::Spot, place::Spot> first_of;
    for (const auto& [op, key] : keys_) first_of[key.spot];
    const place::Spot* before = nullptr;
    for (auto& [spot, first] : first_of) {
      const bool is_same =
          before != nullptr && before->ipu == spot.ipu && before->phase == spot.phase;
      first = is_same ? *before : spot;
      before = &first;
    }
    for (auto& [op, key] : keys_) key.spot = first_of.at(key.spot);
  }

  // Forward from stage to stage, then backward.
  std::vector<Key> sequence() const {
    std::set<Key> keys;
    for (const auto& [op, key] : keys_) keys.insert(key);
    std::vector<Key> sorted(keys.begin(), keys.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const Key& a, const Key& b) {
      if (a.is_backward != b.is_backward) return b.is_backward;
      if (!a.is_backward || a.spot.phase != b.spot.phase) return a.spot < b.spot;
      return b.spot < a.spot;
    });
    return sorted;
  }

  // Where backward follows the last forward run in one stage, both are one task.
  bool is_joined(const std::vector<Key>& runs, size_t i) const {
    const bool is_turn = i > 0 && runs[i].is_backward && !runs[i - 1].is_backward;
    if (!is_turn || order_.splits_last || runs[i].spot != runs[i - 1].spot) return false;
    return std::all_of(runs.begin() + static_cast<std::ptrdiff_t>(i), runs.end(),
                       [](const Key& run) { return run.is_backward; });
  }

  static size_t index_of(const std::vector<Key>& runs, const Key& key) {
    return static_cast<size_t>(std::find(runs.begin(), runs.end(), key) - runs.begin());
  }

  // Whether values only go to the same task or to later ones. In a pipeline what one micro-batch
  // leaves for the next must be read and written by one task.
  bool fits(const Dependencies& dependencies) const {
    for (const auto& op : graph_.ops) {
      const int64_t task = groups_.find(*op);
      if (task < 0) continue;
      for (const ir::Op* before : dependencies.of(*op)) {
        if (groups_.find(*before) > task) return false;
      }
    }
    return !order_.is_pipelined || carries_in_place();
  }

  bool carries_in_place() const {
    std::map<int64_t, int64_t> writers;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      writers[static_cast<int64_t>(i)] = groups_.find(*rewrite::unmoved(graph_.outputs[i])->op);
    }
    for (const auto& op : graph_.ops) {
      const int64_t task = groups_.find(*op);
      for (const ir::Value* operand : op->operands) {
        if (task < 0 || operand == nullptr) continue;
        const ir::Op& maker = *rewrite::unmoved(operand)->op;
        if (maker.name != ir::op::input) continue;
        const auto writer = writers.find(maker.attrs.get_int(ir::attr::index));
        const bool is_kept = writer == writers.end() || writer->second < 0;
        if (!is_kept && writer->second != task) return false;
      }
    }
    return true;
  }

  void add_tasks(const std::vector<Key>& runs) {
    groups_.tasks.clear();
    std::vector<size_t> numbers(runs.size());
    std::map<std::string, int> counts;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (is_joined(runs, i)) {
        groups_.tasks.back().part = "both";
      } else {
        groups_.tasks.push_back(task_of(runs[i], counts));
      }
      numbers[i] = groups_.tasks.size() - 1;
    }
    for (auto& [op, task] : groups_.task_of) task = numbers[task];
  }

  // What a task stores in streaming memory and loads again is no edge. Where another task loads it
  // too, the task does not wait for the edge to that one.
  void take_own_moves() {
    std::map<const ir::Op*, std::set<int64_t>> readers;  // by move: tasks, -1 for the graph
    for (auto op = graph_.ops.rbegin(); op != graph_.ops.rend(); ++op) {
      const auto known = readers.find(op->get());
      const bool passes_on = (*op)->name == ir::op::remote_load && known != readers.end();
      const std::set<int64_t> tasks =
          passes_on ? known->second : std::set<int64_t>{groups_.find(**op)};
      for (const ir::Value* operand : (*op)->operands) {
        if (operand != nullptr) readers[operand->op].insert(tasks.begin(), tasks.end());
      }
    }
    for (const auto& op : graph_.ops) {
      if (op->name != ir::op::remote_store && op->name != ir::op::remote_load) continue;
      const int64_t home = home_of(*op->operand(0)->op);
      if (home < 0 || !readers[op.get()].contains(home)) continue;
      auto& tasks = readers[op.get()].size() == 1 ? groups_.task_of : groups_.also_in;
      tasks[op.get()] = static_cast<size_t>(home);
    }
  }

  // The task that makes the value, or stored it; -1: none.
  int64_t home_of(const ir::Op& maker) const {
    const auto also = groups_.also_in.find(&maker);
    return also == groups_.also_in.end() ? groups_.find(maker)
                                         : static_cast<int64_t>(also->second);
  }

  static Task task_of(const Key& key, std::map<std::string, int>& counts) {
    Task task;
    task.phase = key.spot.phase;
    task.stage = key.spot.stage;
    task.ipu = key.spot.ipu;
    task.part = key.is_backward ? "backward" : "forward";
    task.name = concat(task.phase < 0 ? "" : concat("p", task.phase, "."), "s", task.stage,
                       key.is_backward ? ".back" : "");
    const int count = ++counts[task.name];
    if (count > 1) task.name += concat(".", count);
    return task;
  }

  const ir::Module& module_;
  const ir::Graph& graph_;
  const Order& order_;
  const bool with_update_;
  std::unordered_set<const ir::Op*> is_reduced_;  // all_reduce before the update
  std::unordered_set<const ir::Op*> moved_;       // read by a copy, a store or a load
  std::map<std::string, const ir::Op*> assigns_;  // by path: the op that assigns, or has it inside
  Keys keys_;
  Groups groups_;
};

}  // namespace

Groups groups_of(const ir::Module& module, const ir::Graph& graph, const Order& order) {
  return Grouper(module, graph, order).run();
}

bool has_update(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const auto& op) {
    if (ir::part_of(*op) != ir::Part::update) return false;
    return std::any_of(op->operands.begin(), op->operands.end(), [](const ir::Value* operand) {
      return operand != nullptr && rewrite::is_backward(*rewrite::unmoved(operand)->op);
    });
  });
}

const ir::Value* uncopied(const ir::Value* value) {
  while (value->op->name == ir::op::ipu_copy) value = value->op->operands[0];
  return value;
}

}  // namespace poptorch::tasks
