#include "tasks/runs.h"

#include <algorithm>
#include <map>
#include <set>

namespace poptorch::tasks {

Dependencies::Dependencies(const ir::Graph& graph, const Keys& keys,
                           const std::unordered_set<const ir::Op*>& everywhere) {
  for (const auto& op : graph.ops) {
    std::vector<const ir::Op*>& before = before_[op.get()];
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

std::vector<Key> in_turn(const ir::Graph& graph, const Dependencies& dependencies,
                         const Keys& keys, std::unordered_map<const ir::Op*, size_t>& run_of) {
  std::unordered_map<const ir::Op*, size_t> missing;
  std::unordered_map<const ir::Op*, std::vector<size_t>> readers;
  std::map<Key, std::set<size_t>> ready;
  std::set<size_t> ready_readers;  // what reads nothing of other ops runs with others of its key
  const auto add_ready = [&](size_t i) { ready[keys.at(graph.ops[i].get())].insert(i); };
  size_t left = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op* op = graph.ops[i].get();
    if (!keys.contains(op)) continue;
    ++left;
    const auto& before = dependencies.of(*op);
    missing[op] = before.size();
    for (const ir::Op* maker : before) readers[maker].push_back(i);
    if (before.empty()) add_ready(i);
  }
  std::vector<Key> runs;
  while (left > 0) {
    const auto sources = std::find_if(ready.begin(), ready.end(),
                                      [](const auto& item) { return !item.second.empty(); });
    const size_t first = ready_readers.empty() ? *sources->second.begin() : *ready_readers.begin();
    const Key key = keys.at(graph.ops[first].get());
    runs.push_back(key);
    for (std::set<size_t>& here = ready[key]; !here.empty(); --left) {
      const size_t i = *here.begin();
      here.erase(here.begin());
      ready_readers.erase(i);
      const ir::Op* op = graph.ops[i].get();
      run_of[op] = runs.size() - 1;
      for (const size_t reader : readers[op]) {
        if (--missing.at(graph.ops[reader].get()) > 0) continue;
        add_ready(reader);
        ready_readers.insert(reader);
      }
    }
  }
  return runs;
}

}  // namespace poptorch::tasks
