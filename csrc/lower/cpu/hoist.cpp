// Moves what is computed from weights alone into the graph `preprocess`, which runs once after the
// host has written a state that it reads. Its results are states with the role "preprocessed" that
// the other graphs read. Views and moves between IPUs stay where they are: they cost nothing here.
//
//   graph main {                         graph main {
//     %w = state {path="w"} : f32[4]       %y = state {path="preprocessed:0", role="preprocessed"}
//     %0 = abs %w : f32[4]                 ...
//     %1 = mul %x, %0 : f32[4]             %1 = mul %x, %y : f32[4]
//     ...                          =>    }
//   }                                    graph preprocess {
//                                          %w = state {path="w"} : f32[4]
//                                          %0 = abs %w : f32[4]
//                                          assign %0 {path="preprocessed:0"}
//                                          output
//                                        }
//
// States that some graph assigns stay out of it, and so do results much larger than their operands:
// they would take memory all the time.
#include <algorithm>

#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/fixed.h"
#include "support/error.h"

namespace poptorch::lower::cpu {

namespace {

constexpr int64_t small_bytes = 1 << 20;  // of results that may be larger than their operands

// Cheap enough to be computed in every run, or without cost at all.
bool is_free(const ir::Op& op) { return ops::is_alias(op) || op.operands.empty(); }

bool grows(const ir::Op& op) {
  int64_t in = 0, out = 0;
  for (const ir::Value* operand : op.operands) {
    if (operand != nullptr) in += operand->type.numel() * ir::item_bytes(operand->type.dtype);
  }
  for (const auto& result : op.results) out += result->type.bytes();
  return out > std::max(small_bytes, 2 * in);
}

class Hoister {
 public:
  explicit Hoister(ir::Module& module)
      : module_(module), fixed_(module), preprocess_(module.find_graph("preprocess")) {
    if (preprocess_ == nullptr) return;
    for (const auto& op : preprocess_->ops) preprocessed_ += op->name == ir::op::assign;
  }

  bool run() {
    bool changed = false;
    const size_t count = module_.graphs.size();
    for (size_t i = 0; i < count; ++i) {
      ir::Graph& graph = *module_.graphs[i];
      if (&graph != preprocess_) changed |= hoist(graph);
    }
    return changed;
  }

 private:
  bool hoist(ir::Graph& graph) {
    moved_.clear();
    copies_.clear();
    for (const auto& op : graph.ops) {
      if (may_move(*op)) moved_.insert(op.get());
    }
    std::vector<ir::Value*> wanted = find_wanted(graph);
    if (wanted.empty()) return false;
    if (preprocess_ == nullptr) preprocess_ = module_.add_graph("preprocess");
    std::unordered_map<ir::Value*, ir::Value*> instead;
    std::vector<std::unique_ptr<ir::Op>> states;
    for (ir::Value* value : wanted) {
      const std::string path = concat("preprocessed:", preprocessed_++);
      const ir::Op& maker = *value->op;
      preprocess_->ops.push_back(
          make_like(*preprocess_, maker, ir::op::assign, {copy(value)}, path_attrs(path), {}));
      ir::Attrs attrs = path_attrs(path);
      attrs.set(ir::attr::role, "preprocessed");
      states.push_back(
          make_like(graph, maker, ir::op::state, {}, std::move(attrs), {value->type}));
      instead.emplace(value, states.back()->result());
    }
    graph.ops.insert(graph.ops.begin(), std::make_move_iterator(states.begin()),
                     std::make_move_iterator(states.end()));
    graph.replace_all(instead);
    erase_moved(graph);
    return true;
  }

  bool may_move(const ir::Op& op) const {
    if (op.results.empty() || op.name == ir::op::state || op.name == ir::op::constant) return false;
    if (ops::is_collective(op)) return false;  // a gathered weight would stay in memory
    for (const auto& result : op.results) {
      if (!fixed_.is_from_state(result.get())) return false;
    }
    for (const ir::Value* operand : op.operands) {
      if (operand != nullptr && !is_free(*operand->op) && !moved_.contains(operand->op)) {
        return false;
      }
    }
    return is_free(op) || !grows(op);
  }

  // Values of moved ops that stay in use, views of them included, in the order of their ops.
  std::vector<ir::Value*> find_wanted(const ir::Graph& graph) const {
    std::unordered_set<const ir::Value*> wanted;
    const auto want = [&](const ir::Value* value) {
      if (value != nullptr) value = memory_of(value);
      if (value != nullptr && moved_.contains(value->op)) wanted.insert(value);
    };
    for (const auto& op : graph.ops) {
      if (moved_.contains(op.get())) continue;
      for (const ir::Value* operand : op->operands) want(operand);
    }
    for (const ir::Value* output : graph.outputs) want(output);
    std::vector<ir::Value*> found;
    for (const auto& op : graph.ops) {
      for (const auto& result : op->results) {
        if (wanted.contains(result.get())) found.push_back(result.get());
      }
    }
    return found;
  }

  // The value's twin in `preprocess`, with all that it is computed from.
  ir::Value* copy(const ir::Value* value) {
    const auto known = copies_.find(value);
    if (known != copies_.end()) return known->second;
    const ir::Op& op = *value->op;
    std::vector<ir::Value*> operands;
    for (const ir::Value* operand : op.operands) {
      operands.push_back(operand == nullptr ? nullptr : copy(operand));
    }
    std::vector<ir::Type> types;
    std::vector<std::string> names;
    for (const auto& result : op.results) {
      types.push_back(result->type);
      names.push_back(result->name);
    }
    preprocess_->ops.push_back(
        make_like(*preprocess_, op, op.name, std::move(operands), op.attrs, types, names));
    const ir::Op* twin = preprocess_->ops.back().get();
    for (size_t i = 0; i < op.results.size(); ++i) {
      copies_.emplace(op.result(i), twin->result(i));
    }
    return copies_.at(value);
  }

  // What is moved and no longer used. Views of what is now a state stay.
  void erase_moved(ir::Graph& graph) const {
    std::unordered_set<const ir::Op*> dead;
    for (const auto& op : graph.ops) {
      if (!moved_.contains(op.get())) continue;
      const bool is_alias = ops::is_alias(*op);
      if (!is_alias || dead.contains(op->operand(0)->op)) dead.insert(op.get());
    }
    erase_ops(graph, dead);
  }

  static ir::Attrs path_attrs(const std::string& path) {
    ir::Attrs attrs;
    attrs.set(ir::attr::path, path);
    return attrs;
  }

  ir::Module& module_;
  FixedValues fixed_;
  ir::Graph* preprocess_;
  int64_t preprocessed_ = 0;
  std::unordered_set<const ir::Op*> moved_;
  std::unordered_map<const ir::Value*, ir::Value*> copies_;
};

}  // namespace

bool hoist(ir::Module& module) { return Hoister(module).run(); }

}  // namespace poptorch::lower::cpu
