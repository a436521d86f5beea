// Marks results that take the memory of a dying operand: `inplace` lists for each result the number
// of that operand, or -1. The op's row says which operands its kernel can do this with.
//
//   %1 = relu %0 : f32[4]             // the last use of %0
//                                 =>  %1 = relu %0 {inplace=[0]} : f32[4]
//
// An operand may be overwritten when
//   - its memory, which views share, is read by no later op and by nothing else in this op, and is
//     no output of the graph and bound to no state at its end;
//   - it is all of that memory, in the order of the result (equal types, contiguous);
//   - the memory belongs to a value that was computed in this graph. Constants, host streams and
//     what a loop carries do not count. A state does when the result is what it gets (`assign` of
//     the same path) and no loop further on reads that state.
// Of several such operands the result takes the state that it will be, else the first.
// Who moves ops after this pass must keep the other readers of that memory before the marked op.
#include <algorithm>
#include <set>

#include "ir/bodies.h"
#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"

namespace poptorch::lower::cpu {

namespace {

using PathSet = std::set<std::string>;

// States that a graph reads or assigns, in the bodies of its ops too.
class StatePaths {
 public:
  explicit StatePaths(const ir::Module& module) : module_(module) {}

  const PathSet& of(const std::string& name) {
    const auto known = paths_.find(name);
    if (known != paths_.end()) return known->second;
    PathSet paths;
    const ir::Graph* graph = module_.find_graph(name);
    for (size_t i = 0; graph != nullptr && i < graph->ops.size(); ++i) {
      const ir::Op& op = *graph->ops[i];
      if (op.name == ir::op::state || op.name == ir::op::assign) {
        paths.insert(op.attrs.get_string(ir::attr::path));
      }
      for (const std::string& body : ir::body_names(op)) {
        const PathSet& inner = of(body);
        paths.insert(inner.begin(), inner.end());
      }
    }
    return paths_.emplace(name, std::move(paths)).first->second;
  }

 private:
  const ir::Module& module_;
  std::map<std::string, PathSet> paths_;
};

class Marker {
 public:
  Marker(ir::Graph& graph, StatePaths& paths) : graph_(graph) {
    const size_t end = graph.ops.size();
    for (const ir::Value* output : graph.outputs) last_use_[memory_of(output)] = end;
    for (size_t i = 0; i < end; ++i) see(*graph.ops[i], i, paths);
  }

  bool run() {
    bool changed = false;
    for (size_t i = 0; i < graph_.ops.size(); ++i) changed |= mark(*graph_.ops[i], i);
    return changed;
  }

 private:
  void see(const ir::Op& op, size_t position, StatePaths& paths) {
    const bool is_assign = op.name == ir::op::assign;
    for (const ir::Value* operand : op.operands) {
      if (operand == nullptr || ops::is_alias(op)) continue;
      size_t& last = last_use_[memory_of(operand)];
      last = std::max(last, is_assign ? graph_.ops.size() : position);
    }
    if (is_assign) assigned_to_[unmoved(op.operand(0))].insert(op.attrs.get_string(ir::attr::path));
    if (op.name == ir::op::state) ++state_reads_[op.attrs.get_string(ir::attr::path)];
    for (const std::string& body : ir::body_names(op)) {
      for (const std::string& path : paths.of(body)) last_loop_[path] = position;
    }
  }

  bool mark(ir::Op& op, size_t position) {
    ir::Dims taken;
    std::set<const ir::Value*> claimed;
    for (size_t i = 0; i < op.results.size(); ++i) {
      const int64_t number = operand_for(op, position, i, claimed);
      taken.push_back(number);
      if (number >= 0) claimed.insert(memory_of(op.operand(static_cast<size_t>(number))));
    }
    const ir::Attr before =
        op.attrs.has(ir::attr::inplace) ? *op.attrs.find(ir::attr::inplace) : ir::Attr();
    op.attrs.erase(ir::attr::inplace);
    const ir::Attr after = claimed.empty() ? ir::Attr() : ir::Attr(taken);
    if (!claimed.empty()) op.attrs.set(ir::attr::inplace, after);
    return !(before == after);
  }

  // First of all the state that the result will be; -1: none.
  int64_t operand_for(const ir::Op& op, size_t position, size_t result,
                      const std::set<const ir::Value*>& claimed) const {
    int64_t found = -1;
    for (const int candidate : ops::inplace_candidates(op, result)) {
      const auto number = static_cast<size_t>(candidate);
      if (!may_take(op, position, result, number)) continue;
      const ir::Value* memory = memory_of(op.operand(number));
      if (claimed.contains(memory)) continue;
      if (memory->op->name == ir::op::state) return candidate;
      if (found < 0) found = candidate;
    }
    return found;
  }

  bool may_take(const ir::Op& op, size_t position, size_t result, size_t number) const {
    const ir::Value* operand = op.operand(number);
    if (operand == nullptr) return false;
    const ir::Value* memory = memory_of(operand);
    const ir::Type& type = op.result(result)->type;
    const bool is_whole = operand->type == type && type.is_contiguous() &&
                          memory->type.numel() == type.numel() && type.numel() > 0;
    if (!is_whole || last_use_.at(memory) != position) return false;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ir::Value* other = op.operands[i];
      if (i != number && other != nullptr && memory_of(other) == memory) return false;
    }
    const ir::OpName maker = memory->op->name;
    if (maker == ir::op::state) return may_take_state(*memory->op, *op.result(result), position);
    return maker != ir::op::constant && maker != ir::op::stream_in && maker != ir::op::input &&
           !ir::has_bodies(*memory->op);
  }

  bool may_take_state(const ir::Op& state, const ir::Value& result, size_t position) const {
    const std::string& path = state.attrs.get_string(ir::attr::path);
    const auto assigned = assigned_to_.find(&result);
    if (assigned == assigned_to_.end() || !assigned->second.contains(path)) return false;
    const auto loop = last_loop_.find(path);
    const bool seen_later = loop != last_loop_.end() && loop->second > position;
    return !seen_later && state_reads_.at(path) == 1;
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Value*, size_t> last_use_;  // of memory, views included
  std::unordered_map<const ir::Value*, PathSet> assigned_to_;
  std::map<std::string, size_t> last_loop_;   // position of the last loop that reads the state
  std::map<std::string, int> state_reads_;  // two reads of one state are two names of one memory
};

}  // namespace

bool inplace(ir::Module& module) {
  StatePaths paths(module);
  return rewrite::in_each_graph(module,
                                [&](ir::Graph& graph) { return Marker(graph, paths).run(); });
}

}  // namespace poptorch::lower::cpu
