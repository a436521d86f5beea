#include "tasks/recompute.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/bodies.h"
#include "ir/copy.h"
#include "ops/op_def.h"
#include "place/place.h"
#include "rewrite/edit.h"
#include "support/error.h"
#include "support/mutant.h"
#include "tasks/edges.h"

namespace poptorch::tasks {

namespace {

using Values = std::unordered_set<const ir::Value*>;

bool is_input(const ir::Op& op) { return op.name == ir::op::input; }

const std::string& kind_of(const ir::Op& task) { return task.attrs.get_string(ir::attr::part); }

int64_t position_of(const ir::Op& op) { return op.attrs.get_int(ir::attr::position, -1); }

// Operands of a task by input op of its body.
size_t index_of(const ir::Op& input) {
  return static_cast<size_t>(input.attrs.get_int(ir::attr::index));
}

// One backward task, with what it reads and how that came to it.
class Recomputer {
 public:
  Recomputer(ir::Module& module, ir::Graph& graph, ir::Op& task,
             const std::set<std::string>& assigned)
      : module_(module), graph_(graph), task_(task), body_(ir::body_of(module, task)),
        assigned_(assigned) {
    for (const auto& op : body_.ops) {
      if (is_input(*op)) inputs_[index_of(*op)] = op->result();
      if (!is_input(*op)) made_[position_of(*op)] = op.get();
    }
  }

  void run() {
    find_dropped();
    if (dropped_.empty()) return;
    for (const auto& [index, value] : inputs_) {
      if (!dropped_.contains(index)) known_[origin(task_.operand(index))] = value;
    }
    for (auto& [forward, wanted] : wanted_) add_again(*forward, wanted);
    for (const auto& [index, value] : dropped_) replaced_[inputs_.at(index)] = known_.at(value);
    rebuild();
  }

 private:
  // The value of a body that a value of the graph is: before moves, and before tasks that only pass
  // it on.
  const ir::Value* origin(const ir::Value* value) const {
    while (true) {
      const ir::Op& op = *value->op;
      if (ops::is_move(op)) {
        value = op.operand(0);
        continue;
      }
      if (op.name != ir::op::task) return value;
      const ir::Value* inner =
          ir::body_of(module_, op).outputs[static_cast<size_t>(value->index)];
      if (!is_input(*inner->op)) return inner;
      value = op.operand(index_of(*inner->op));
    }
  }

  const ir::Value* origin(const ir::Op& task, const ir::Value& inner) const {
    return is_input(*inner.op) ? origin(task.operand(index_of(*inner.op))) : &inner;
  }

  // Whether the op gives the same once more, and does nothing else.
  bool may_repeat(const ir::Op& op) const {
    if (is_input(op) || op.name == ir::op::stream_in) return false;
    if (op.attrs.has(ir::attr::checkpoint) || ops::is_foreign(op)) return false;
    if (op.name == ir::op::state) return !assigned_.contains(op.attrs.get_string(ir::attr::path));
    if (!ir::has_bodies(op) && rewrite::has_effects(op)) return false;
    for (const ir::Graph* inner : ir::bodies_of(module_, op)) {
      const bool is_pure = std::all_of(inner->ops.begin(), inner->ops.end(), [&](const auto& one) {
        return is_input(*one) || may_repeat(*one);
      });
      if (!is_pure) return false;
    }
    return true;
  }

  // What the task keeps of a forward task of its IPU.
  void find_dropped() {
    for (size_t i = 0; i < task_.operands.size(); ++i) {
      const ir::Value* value = task_.operand(i);
      bool is_streaming = false, is_copied = false;
      while (ops::is_move(*value->op)) {
        is_streaming = is_streaming || value->op->name == ir::op::remote_store;
        if (ops::is_by_io_tiles(*value->op)) by_io_tiles_.push_back(value->op->name);
        is_copied = is_copied || value->op->name == ir::op::ipu_copy;
        value = value->op->operand(0);
      }
      ir::Op& forward = *value->op;
      const bool is_own = forward.name == ir::op::task && kind_of(forward) == "forward" &&
                          forward.attrs.get_int(ir::attr::ipu) ==
                              task_.attrs.get_int(ir::attr::ipu);
      if (!is_own || is_copied) continue;
      const ir::Value* inner =
          ir::body_of(module_, forward).outputs[static_cast<size_t>(value->index)];
      if (!may_repeat(*inner->op)) continue;
      dropped_[i] = inner;
      wanted_of(forward).insert(inner);
      if (is_streaming) least_streaming_ = std::min(least_streaming_, inner->type.numel());
    }
  }

  Values& wanted_of(ir::Op& forward) {
    for (auto& [task, values] : wanted_) {
      if (task == &forward) return values;
    }
    return wanted_.emplace_back(&forward, Values()).second;
  }

  // The ops of a forward task from which these values are computed, once more.
  void add_again(ir::Op& forward, Values& wanted) {
    const ir::Graph& from = ir::body_of(module_, forward);
    std::vector<ir::Op*> needed;
    for (auto op = from.ops.rbegin(); op != from.ops.rend(); ++op) {
      const bool is_wanted =
          std::any_of((*op)->results.begin(), (*op)->results.end(),
                      [&](const auto& result) {
                        return wanted.contains(result.get()) && !known_.contains(result.get());
                      });
      if (!is_wanted) continue;
      needed.push_back(op->get());
      if (!may_repeat(**op) || is_known(**op)) continue;
      for (const ir::Value* operand : (*op)->operands) {
        if (operand != nullptr) wanted.insert(operand);
      }
    }
    for (auto op = needed.rbegin(); op != needed.rend(); ++op) {
      if (may_repeat(**op) && !is_known(**op)) {
        add_copy(**op);
        continue;
      }
      for (const auto& result : (*op)->results) {
        if (wanted.contains(result.get())) known_[result.get()] = kept(forward, *result);
      }
    }
  }

  // Whether the backward task gets a result by an edge that it keeps: one that a later task passes
  // on.
  bool is_known(const ir::Op& op) const {
    return std::any_of(op.results.begin(), op.results.end(),
                       [&](const auto& result) { return known_.contains(result.get()); });
  }

  // Constants and states that the backward task reads itself are there already.
  void add_copy(const ir::Op& op) {
    const auto twin = made_.find(position_of(op));
    if (twin != made_.end()) {
      for (size_t i = 0; i < op.results.size(); ++i) {
        known_[op.result(i)] = twin->second->result(i);
      }
      return;
    }
    auto again = std::make_unique<ir::Op>(ir::copy_apart(op));
    for (ir::Value*& operand : again->operands) {
      if (operand != nullptr) operand = known_.at(operand);
    }
    if (!place::is_source(op) && !ops::is_move(op)) {
      if (again->attrs.has(ir::attr::part)) again->attrs.set(ir::attr::part, "backward");
      again->attrs.set(ir::attr::recompute, 1);
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      again->result(i)->op = again.get();
      known_[op.result(i)] = again->result(i);
    }
    again_.push_back(std::move(again));
  }

  // The value in the body of the backward task, to which a stash brings it.
  ir::Value* kept(ir::Op& forward, ir::Value& inner) {
    const auto known = known_.find(origin(forward, inner));
    if (known != known_.end()) return known->second;
    ir::Attrs attrs;
    for (const ir::AttrName name : std::array{ir::attr::ipu, ir::attr::part, ir::attr::stage}) {
      if (const ir::Attr* attr = task_.attrs.find(name)) attrs.set(name, *attr);
    }
    if (!inner.op->attrs.has(ir::attr::part)) attrs.erase(ir::attr::part);
    ir::Value* moved = given_by(forward, inner);
    const bool is_streaming =
        inner.op->name != ir::op::state && inner.type.numel() >= least_streaming_;
    const auto names = is_streaming ? std::vector{ir::op::remote_store, ir::op::remote_load}
                                    : std::vector{ir::op::stash};
    for (const ir::OpName name : names) moved = add_move(name, *moved, attrs, inner.name);
    auto input = std::make_unique<ir::Op>();
    input->name = ir::op::input;
    input->attrs = std::move(attrs);
    input->results.push_back(
        std::make_unique<ir::Value>(ir::Value{inner.name, inner.type, input.get(), 0}));
    new_inputs_.emplace_back(moved, std::move(input));
    return new_inputs_.back().second->result();
  }

  ir::Value* given_by(ir::Op& forward, ir::Value& inner) {
    std::vector<ir::Value*>& outputs = ir::body_of(module_, forward).outputs;
    const auto known = std::find(outputs.begin(), outputs.end(), &inner);
    if (known != outputs.end()) {
      return forward.result(static_cast<size_t>(known - outputs.begin()));
    }
    const std::string wanted = is_input(*inner.op) ? inner.name + ".passed" : inner.name;
    const std::unique_ptr<ir::Op> named =
        graph_.make(ir::op::stash, {}, {}, {inner.type}, {}, {wanted});
    forward.results.push_back(std::make_unique<ir::Value>(
        ir::Value{named->result()->name, inner.type, &forward, static_cast<int>(outputs.size())}));
    outputs.push_back(&inner);
    return forward.results.back().get();
  }

  ir::Value* add_move(ir::OpName name, ir::Value& value, ir::Attrs attrs,
                      const std::string& kept) {
    attrs.set(ir::attr::bytes, place::moved_bytes(value.type));
    if (std::find(by_io_tiles_.begin(), by_io_tiles_.end(), name) != by_io_tiles_.end()) {
      attrs.set(ir::attr::tiles, "io");
    }
    const char* suffix = name == ir::op::stash          ? ".kept"
                         : name == ir::op::remote_store ? ".stored"
                                                        : ".stored.backward";
    std::unique_ptr<ir::Op> op =
        graph_.make(name, {&value}, std::move(attrs), {value.type}, {}, {kept + suffix});
    ir::Value* moved = op->result();
    const auto at = std::find_if(graph_.ops.begin(), graph_.ops.end(),
                                 [&](const auto& one) { return one.get() == &task_; });
    graph_.ops.insert(at, std::move(op));
    return moved;
  }

  // The body with other inputs, and with the ops that compute again.
  void rebuild() {
    std::vector<std::unique_ptr<ir::Op>> inputs, ops;
    std::vector<ir::Value*> operands;
    for (auto& op : body_.ops) {
      if (!is_input(*op)) {
        ops.push_back(std::move(op));
      } else if (!dropped_.contains(index_of(*op))) {
        operands.push_back(task_.operand(index_of(*op)));
        inputs.push_back(std::move(op));
      } else {
        gone_.push_back(std::move(op));
      }
    }
    for (auto& [operand, op] : new_inputs_) {
      operands.push_back(operand);
      inputs.push_back(std::move(op));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i]->attrs.set(ir::attr::index, static_cast<int64_t>(i));
    }
    task_.operands = std::move(operands);
    for (auto& op : again_) ops.push_back(std::move(op));
    std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
      return position_of(*a) < position_of(*b);
    });
    body_.ops.clear();
    for (auto& op : inputs) body_.adopt(std::move(op));
    for (auto& op : ops) body_.adopt(std::move(op));
    body_.replace_all(replaced_);
  }

  ir::Module& module_;
  ir::Graph& graph_;
  ir::Op& task_;
  ir::Graph& body_;
  const std::set<std::string>& assigned_;
  std::map<size_t, ir::Value*> inputs_;                // of the body, by operand
  std::unordered_map<int64_t, ir::Op*> made_;          // ops of the body, by position
  std::map<size_t, const ir::Value*> dropped_;         // by operand: the value in the forward body
  std::vector<std::pair<ir::Op*, Values>> wanted_;  // of forward tasks
  std::unordered_map<const ir::Value*, ir::Value*> known_;  // in this body, by origin
  std::vector<std::pair<ir::Value*, std::unique_ptr<ir::Op>>> new_inputs_;
  std::vector<std::unique_ptr<ir::Op>> again_, gone_;
  std::unordered_map<ir::Value*, ir::Value*> replaced_;
  // The least elements of what the task reads from streaming memory: smaller tensors stay on the
  // chip.
  int64_t least_streaming_ = std::numeric_limits<int64_t>::max();
  std::vector<ir::OpName> by_io_tiles_;  // remote_store, remote_load
};

// Paths of states that the bodies of an op assign.
std::set<std::string> assigned_in(const ir::Module& module, const ir::Op& op) {
  std::set<std::string> paths;
  for (const ir::Graph* body : ir::bodies_of(module, op)) {
    for (const auto& inner : body->ops) {
      if (inner->name == ir::op::assign) paths.insert(inner->attrs.get_string(ir::attr::path));
      paths.merge(assigned_in(module, *inner));
    }
  }
  return paths;
}

// Moves and results of tasks that nothing reads any more.
void remove_unread(const ir::Module& module, ir::Graph& graph) {
  Values read(graph.outputs.begin(), graph.outputs.end());
  std::vector<std::unique_ptr<ir::Op>> left;
  for (auto op = graph.ops.rbegin(); op != graph.ops.rend(); ++op) {
    if (ops::is_move(**op) && !read.contains((*op)->result())) continue;
    if ((*op)->name == ir::op::task) {
      std::vector<ir::Value*>& outputs = ir::body_of(module, **op).outputs;
      auto& results = (*op)->results;
      for (size_t i = results.size(); i-- > 0;) {
        if (read.contains(results[i].get())) continue;
        results.erase(results.begin() + static_cast<std::ptrdiff_t>(i));
        outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(i));
      }
      for (size_t i = 0; i < results.size(); ++i) results[i]->index = static_cast<int>(i);
    }
    read.insert((*op)->operands.begin(), (*op)->operands.end());
    left.push_back(std::move(*op));
  }
  graph.ops.assign(std::make_move_iterator(left.rbegin()), std::make_move_iterator(left.rend()));
}

// Whether stages compute again; a user error where the op `strategy` asks for something else.
bool is_wanted(const ir::Op& strategy) {
  const ir::AttrName name(std::string_view("recomputation"));
  const std::string when = std::get<std::string>(ops::attr_of(strategy, name).value);
  const std::string& kind = strategy.attrs.get_string(ir::attr::kind);
  if (when == "off" || MUTANT(ignores_recomputation)) return false;
  if (when == "stages") return kind == "pipelined" || kind == "sharded";
  USER_CHECK(when == "auto", "[place] there is no recomputation \"", when,
             "\". It is one of auto, off, stages.");
  return kind == "pipelined" && !strategy.attrs.get_bool(ir::attr::cyclic, false);
}

}  // namespace

void recompute(ir::Module& module) {
  const ir::Op* strategy = place::find_strategy(module);
  if (strategy == nullptr || !is_wanted(*strategy)) return;
  for (size_t i = 0; i < module.graphs.size(); ++i) {
    ir::Graph& graph = *module.graphs[i];
    if (!has_tasks(graph)) continue;
    const std::vector<ir::Op*> tasks = edges_of(graph).tasks;
    std::set<std::string> assigned;
    for (const ir::Op* task : tasks) assigned.merge(assigned_in(module, *task));
    for (ir::Op* task : tasks) {
      if (kind_of(*task) == "backward") Recomputer(module, graph, *task, assigned).run();
    }
    remove_unread(module, graph);
  }
}

}  // namespace poptorch::tasks
