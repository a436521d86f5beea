#include "tasks/runs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace poptorch::tasks {

Dependencies::Dependencies(const ir::Graph& graph, const Keys& keys,
                           const std::unordered_set<const ir::Op*>& everywhere) {
  std::unordered_map<std::string, const ir::Op*> states;
  for (const auto& op : graph.ops) {
    std::vector<const ir::Op*>& before = before_[op.get()];
    if (op->name == ir::op::state && keys.contains(op.get())) {
      states[op->attrs.get_string(ir::attr::path)] = op.get();
    } else if (op->name == ir::op::assign) {
      const auto state = states.find(op->attrs.get_string(ir::attr::path));
      if (state != states.end()) before.push_back(state->second);
    }
    for (const ir::Value* operand : op->operands) {
      if (operand == nullptr) continue;
      const ir::Op* maker = operand->op;
      const bool is_copied = op->name == ir::op::ipu_copy;
      if (keys.contains(maker) && (is_copied || !everywhere.contains(maker))) {
        before.push_back(maker);
      } else if (!keys.contains(maker)) {
        const std::vector<const ir::Op*>& through = before_.at(maker);
        before.insert(before.end(), through.begin(), through.end());
      }
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
  }
}

namespace {

// Goes through the ops that have keys, by their numbers in the graph.
class Turns {
 public:
  Turns(const ir::Graph& graph, const Dependencies& dependencies, const Keys& keys,
        std::unordered_map<const ir::Op*, size_t>& run_of)
      : graph_(graph), dependencies_(dependencies), keys_(keys), run_of_(run_of) {}

  std::vector<Key> run() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op* op = graph_.ops[i].get();
      if (!keys_.contains(op)) continue;
      for (const ir::Op* maker : dependencies_.of(*op)) readers_[maker].push_back(i);
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op* op = graph_.ops[i].get();
      if (!keys_.contains(op)) continue;
      if (waits_for_readers(*op)) {
        waiting_.insert(op);
        continue;
      }
      const auto& before = dependencies_.of(*op);
      missing_[op] = static_cast<size_t>(std::count_if(
          before.begin(), before.end(), [&](const ir::Op* x) { return !waiting_.contains(x); }));
      if (missing_[op] == 0) add_ready(i, !before.empty());
    }
    while (!ready_readers_.empty() || !ready_sources_.empty()) {
      runs_.push_back(next());
      std::set<size_t>& here = ready_[runs_.back()];
      while (!here.empty()) take(*here.begin());
    }
    return std::move(runs_);
  }

 private:
  // Nothing of the micro-batch is in it but itself, and ops of one key read it: the first of them
  // decides in which run it is.
  bool waits_for_readers(const ir::Op& op) const {
    const auto readers = readers_.find(&op);
    if (readers == readers_.end()) return false;
    const auto& before = dependencies_.of(op);
    const bool is_source = std::all_of(before.begin(), before.end(), [&](const ir::Op* maker) {
      return waiting_.contains(maker) && maker->name != ir::op::stream_in;
    });
    bool has_one_key = true, is_assigned = false;
    for (const size_t i : readers->second) {
      const ir::Op* reader = graph_.ops[i].get();
      has_one_key = has_one_key && keys_.at(reader) == keys_.at(&op);
      is_assigned = is_assigned || reader->name == ir::op::assign;
    }
    // A state must be read before it is assigned.
    return is_source && has_one_key && (op.name != ir::op::state || is_assigned);
  }

  // Forward runs come first: an IPU runs its forward tasks before the others.
  Key next() const {
    for (const bool is_backward : {false, true}) {
      for (const std::set<size_t>* ready : {&ready_readers_, &ready_sources_}) {
        for (const size_t i : *ready) {
          const Key& key = keys_.at(graph_.ops[i].get());
          if (key.is_backward == is_backward) return key;
        }
      }
    }
    return {};
  }

  void add_ready(size_t i, bool is_reader) {
    ready_[keys_.at(graph_.ops[i].get())].insert(i);
    (is_reader ? ready_readers_ : ready_sources_).insert(i);
  }

  void take(size_t i) {
    const ir::Op* op = graph_.ops[i].get();
    ready_[runs_.back()].erase(i);
    ready_readers_.erase(i);
    ready_sources_.erase(i);
    take_waiting(*op);
    for (const size_t reader : readers_[op]) {
      const auto found = missing_.find(graph_.ops[reader].get());
      if (found != missing_.end() && --found->second == 0) add_ready(reader, true);
    }
  }

  // The op itself, and what waited for it.
  void take_waiting(const ir::Op& op) {
    run_of_[&op] = runs_.size() - 1;
    is_taken_.insert(&op);
    for (const ir::Op* maker : dependencies_.of(op)) {
      if (waiting_.contains(maker) && !is_taken_.contains(maker)) take_waiting(*maker);
    }
  }

  const ir::Graph& graph_;
  const Dependencies& dependencies_;
  const Keys& keys_;
  std::unordered_map<const ir::Op*, size_t>& run_of_;
  std::unordered_map<const ir::Op*, std::vector<size_t>> readers_;
  std::unordered_map<const ir::Op*, size_t> missing_;  // how many ops that do not wait for readers
  std::unordered_set<const ir::Op*> waiting_, is_taken_;
  std::map<Key, std::set<size_t>> ready_;
  std::set<size_t> ready_readers_, ready_sources_;
  std::vector<Key> runs_;
};

}  // namespace

std::vector<Key> in_turn(const ir::Graph& graph, const Dependencies& dependencies,
                         const Keys& keys, std::unordered_map<const ir::Op*, size_t>& run_of) {
  return Turns(graph, dependencies, keys, run_of).run();
}

}  // namespace poptorch::tasks
