#include "tasks/edges.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "ops/op_def.h"

namespace poptorch::tasks {

namespace {

// A remote_load holds nothing.
bool is_crossing(const ir::Op& op) { return ops::is_move(op) || op.name == ir::op::stash; }
bool holds_values(const ir::Op& op) {
  return is_crossing(op) && op.name != ir::op::remote_load;
}

std::string_view part_of(const ir::Op& task) { return task.attrs.get_string(ir::attr::part); }

bool is_at(const ir::Op& op, const ir::Op& other) {
  return op.attrs.get_int(ir::attr::ipu, 0) == other.attrs.get_int(ir::attr::ipu, 0) &&
         op.attrs.get_int(ir::attr::stage, 0) == other.attrs.get_int(ir::attr::stage, 0);
}

class Reader {
 public:
  explicit Reader(const ir::Graph& graph) {
    for (const auto& op : graph.ops) {
      if (op->name == ir::op::task) {
        numbers_[op.get()] = found_.tasks.size();
        found_.tasks.push_back(op.get());
      }
      std::set<const ir::Value*> read;
      for (const ir::Value* operand : op->operands) {
        if (operand != nullptr && read.insert(operand).second) users_[operand].push_back(op.get());
      }
    }
  }

  TaskEdges read(const ir::Graph& graph) {
    for (const auto& op : graph.ops) {
      if (op->name == ir::op::task) {
        for (const auto& result : op->results) add_direct(*result, numbers_.at(op.get()));
      } else if (holds_values(*op)) {
        add_held(*op);
      }
    }
    return std::move(found_);
  }

 private:
  void add_direct(const ir::Value& value, size_t source) {
    const std::set<size_t> targets = direct_takers(value);
    if (!targets.empty()) add({nullptr, source, {}, value.type.bytes(), false}, targets);
  }

  void add_held(ir::Op& op) {
    const std::optional<size_t> source = source_of(op);
    const std::set<size_t> targets = takers(*op.result());
    if (!source || targets.empty()) return;
    add({&op, *source, {}, op.result()->type.bytes(), is_streaming(op)}, targets);
  }

  void add(Edge edge, const std::set<size_t>& targets) {
    edge.targets.assign(targets.begin(), targets.end());
    found_.edges.push_back(std::move(edge));
  }

  static bool is_streaming(const ir::Op& op) {
    if (op.name == ir::op::remote_store) return true;
    return op.name == ir::op::stash && op.operand(0)->op->name == ir::op::remote_store;
  }

  // The tasks that read the value, by a remote_load too.
  std::set<size_t> direct_takers(const ir::Value& value) const {
    std::set<size_t> found;
    const auto users = users_.find(&value);
    if (users == users_.end()) return found;
    for (const ir::Op* user : users->second) {
      if (user->name == ir::op::task) found.insert(numbers_.at(user));
      if (user->name == ir::op::remote_load) found.merge(direct_takers(*user->result()));
    }
    return found;
  }

  // The same with the tasks in whose turn other ops take it.
  std::set<size_t> takers(const ir::Value& value) const {
    std::set<size_t> found = direct_takers(value);
    const auto users = users_.find(&value);
    if (users == users_.end()) return found;
    for (const ir::Op* user : users->second) {
      if (holds_values(*user)) found.insert(*source_of(*user));
      if (user->name == ir::op::remote_load) found.merge(takers(*user->result()));
    }
    return found;
  }

  // The task in whose turn a move takes its operand; none where no task makes the value.
  std::optional<size_t> source_of(const ir::Op& op) const {
    const ir::Op& maker = *op.operand(0)->op;
    if (maker.name == ir::op::task) return numbers_.at(&maker);
    if (!is_crossing(maker)) return std::nullopt;
    const std::optional<size_t> source = source_of(maker);
    if (!source) return std::nullopt;
    const std::set<size_t> readers = direct_takers(*maker.result());
    if (!readers.empty()) return *readers.begin();
    return between(maker, part_of(*found_.tasks[*source]) == "forward").value_or(*source);
  }

  // The task at the place of a move that works in the direction of the value.
  std::optional<size_t> between(const ir::Op& move, bool is_forward) const {
    for (size_t i = 0; i < found_.tasks.size(); ++i) {
      const std::string_view part = part_of(*found_.tasks[i]);
      const bool fits = part == "both" || (part == "forward") == is_forward;
      if (fits && is_at(*found_.tasks[i], move)) return i;
    }
    return std::nullopt;
  }

  TaskEdges found_;
  std::unordered_map<const ir::Op*, size_t> numbers_;
  std::unordered_map<const ir::Value*, std::vector<const ir::Op*>> users_;
};

}  // namespace

bool has_tasks(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const auto& op) { return op->name == ir::op::task; });
}

TaskEdges edges_of(const ir::Graph& graph) { return Reader(graph).read(graph); }

const ir::Op* pipeline_of(const ir::Module& module, const ir::Graph& graph) {
  for (const ir::Op* op : module.all_ops()) {
    if (op->name == ir::op::loop && op->attrs.has(ir::attr::pipeline) &&
        op->attrs.get_graph(ir::attr::body) == graph.name) {
      return op;
    }
  }
  return nullptr;
}

}  // namespace poptorch::tasks
