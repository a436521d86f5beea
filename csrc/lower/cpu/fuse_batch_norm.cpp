// Batch norm does what comes right behind it: the addition of a residual, the relu, and in the
// backward pass the relu's mask. Each of them saves a walk through memory.
//
//   %y, %mean, %invstd, _, _ = batch_norm %x, %w, %b, _, _ : f32[2,3,4,4], ...
//   %1 = add %y, %r : f32[2,3,4,4]
//   %2 = relu %1 : f32[2,3,4,4]
// =>
//   %y, %mean, ... = batch_norm %x, %w, %b, _, _, %r {relu=true} : f32[2,3,4,4], ...
//
//   %3 = threshold_backward %g, %2 {threshold=0.0} : f32[2,3,4,4]
//   %4, %5, %6 = batch_norm_backward %3, %x, %w, %mean, %invstd : f32[2,3,4,4], ...
//   %7 = add %3, %other                                           // what else uses %3
// =>
//   %4, %5, %6, %8 = batch_norm_backward %g, %x, %w, %mean, %invstd, %2 {grad_residual=true} : ...
//   %7 = add %8, %other
//
// Only ops at one place are joined. In f32 and f64 that rounds nothing differently; 16-bit floats
// are rounded once instead of after each op.
#include <algorithm>

#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "support/mutant.h"

namespace poptorch::lower::cpu {

namespace {

constexpr size_t residual_operand = 5;  // of batch_norm
constexpr size_t out_operand = 5;       // of batch_norm_backward

bool is_true(const ir::Op& op, ir::AttrName name) {
  return ops::attr_of(op, name) == ir::Attr(true);
}

class ForwardFuser {
 public:
  explicit ForwardFuser(ir::Graph& graph) : graph_(graph), uses_(graph.count_uses()) {
    for (size_t i = 0; i < graph.ops.size(); ++i) position_[graph.ops[i].get()] = i;
  }

  bool run() {
    return replace_each(graph_, [&](ir::Op& op) -> std::vector<ir::Value*> {
      ir::Value* fused = nullptr;
      if (op.name == ir::op::add) fused = take_residual(op);
      if (op.name == ir::op::relu) fused = take_relu(op);
      if (fused == nullptr) return {};
      uses_[fused] = uses_[op.result()];
      return {fused};
    });
  }

 private:
  // The batch norm that makes the value for this op alone; nullptr when there is none that can do
  // more.
  ir::Op* batch_norm_of(const ir::Op& op, const ir::Value* value) const {
    ir::Op* maker = value->op;
    const bool fits = maker->name == ir::op::batch_norm && maker->result() == value &&
                      (uses_.at(value) == 1 || MUTANT(batch_norm_joins_what_others_read)) &&
                      !is_true(*maker, ir::attr::relu) &&
                      value->type == op.result()->type && may_join(*maker, op);
    return fits ? maker : nullptr;
  }

  static bool may_join(const ir::Op& norm, const ir::Op& op) {
    if (!is_at_one_place(norm, op)) return false;
    const bool changes_rounding = op.name == ir::op::add && ir::is_half(op.result()->type.dtype);
    return changes_rounding
               ? ops::attr_of(norm, ir::attr::recompute) == ops::attr_of(op, ir::attr::recompute)
               : is_alike(norm, op);
  }

  ir::Value* take_residual(const ir::Op& op) {
    if (!(ops::attr_of(op, ir::attr::alpha) == ir::Attr(1.0))) return nullptr;
    for (size_t i : {0, 1}) {
      ir::Op* norm = batch_norm_of(op, op.operands[i]);
      ir::Value* other = op.operands[1 - i];
      if (norm == nullptr || norm->operand(residual_operand) != nullptr) continue;
      const bool is_ready = position_.at(other->op) < position_.at(norm);
      if (!is_ready || !(other->type == op.result()->type)) continue;
      norm->operands.resize(residual_operand + 1, nullptr);
      norm->operands[residual_operand] = other;
      return norm->result();
    }
    return nullptr;
  }

  ir::Value* take_relu(const ir::Op& op) {
    ir::Op* norm = batch_norm_of(op, op.operands[0]);
    if (norm == nullptr) return nullptr;
    norm->attrs.set(ir::attr::relu, true);
    return norm->result();
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Value*, int> uses_;
  std::unordered_map<const ir::Op*, size_t> position_;
};

class BackwardFuser {
 public:
  explicit BackwardFuser(ir::Graph& graph) : graph_(graph) {
    for (const auto& op : graph.ops) {
      for (const ir::Value* operand : op->operands) {
        if (operand != nullptr) first_user_.emplace(operand, op.get());
      }
    }
    uses_ = graph.count_uses();
  }

  bool run() {
    for (auto& op : graph_.ops) {
      for (ir::Value*& operand : op->operands) follow(operand);
      if (ir::Op* mask = mask_of(*op)) fuse(*op, *mask);
      kept_.push_back(std::move(op));
    }
    for (ir::Value*& output : graph_.outputs) follow(output);
    graph_.ops = std::move(kept_);
    erase_ops(graph_, dead_);
    return !dead_.empty();
  }

 private:
  void follow(ir::Value*& value) const {
    const auto found = instead_.find(value);
    if (found != instead_.end()) value = found->second;
  }

  // The op that masks the gradient of this batch_norm_backward, the first one to use it.
  ir::Op* mask_of(const ir::Op& op) const {
    if (op.name != ir::op::batch_norm_backward) return nullptr;
    if (op.operand(out_operand) != nullptr) return nullptr;
    const ir::Value* grad = op.operands[0];
    ir::Op* mask = grad->op;
    const bool fits = mask->name == ir::op::threshold_backward &&
                      first_user_.at(grad) == &op && belong_together(*mask, op) &&
                      ops::attr_of(*mask, ir::attr::threshold) == ir::Attr(0.0) &&
                      mask->operand(0)->type == grad->type && mask->operand(1)->type == grad->type;
    const bool only_once = std::count(op.operands.begin(), op.operands.end(), grad) == 1;
    return fits && only_once ? mask : nullptr;
  }

  void fuse(ir::Op& op, ir::Op& mask) {
    op.operands.resize(out_operand + 1, nullptr);
    op.operands[0] = mask.operands[0];
    op.operands[out_operand] = mask.operands[1];
    dead_.insert(&mask);
    const ir::Value* grad = mask.result();
    if (uses_.at(grad) == 1) return;
    // Others read the masked gradient too.
    ir::Attrs attrs = op.attrs;
    attrs.set(ir::attr::grad_residual, true);
    std::vector<ir::Type> types;
    for (const auto& result : op.results) types.push_back(result->type);
    types.push_back(grad->type);
    auto made = make_like(graph_, op, op.name, op.operands, std::move(attrs), types);
    for (size_t i = 0; i < op.results.size(); ++i) instead_.emplace(op.result(i), made->result(i));
    instead_.emplace(mask.result(), made->result(op.results.size()));
    dead_.insert(&op);
    kept_.push_back(std::move(made));
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Value*, const ir::Op*> first_user_;
  std::unordered_map<const ir::Value*, int> uses_;
  std::unordered_map<const ir::Value*, ir::Value*> instead_;
  std::unordered_set<const ir::Op*> dead_;
  std::vector<std::unique_ptr<ir::Op>> kept_;
};

}  // namespace

bool fuse_batch_norm(ir::Module& module) {
  return rewrite::in_each_graph(module, [](ir::Graph& graph) {
    const bool is_forward_fused = ForwardFuser(graph).run();
    return BackwardFuser(graph).run() || is_forward_fused;
  });
}

}  // namespace poptorch::lower::cpu
