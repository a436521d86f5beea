// Results must not depend on blocks. A target may compute an op together with the one before it, if
// both are at one place, and then rounds once. So what may be rounded once never stands apart from
// what is before it: `beside` makes place put an op where that operand is made, whatever its
// block says. Such are
//   - the addition of a residual to a batch norm of 16-bit floats;
//   - an addition to, or silu or hardswish of, a convolution by fixed weights.
// What rounds nothing, such as relu, stays in its block. Without a strategy all is at one place.
//
//   %1 = convolution %x, %w {block="a"} : f32[8,4,7,7]
//   %2 = add %1, %r {block="b"} : f32[8,4,7,7]
// =>
//   %2 = add %1, %r {beside=0, block="b"} : f32[8,4,7,7]
#include <algorithm>

#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/fixed.h"
#include "rewrite/pass.h"

namespace poptorch::rewrite {

namespace {

class Settler {
 public:
  Settler(ir::Graph& graph, const FixedValues& fixed)
      : graph_(graph), fixed_(fixed), uses_(graph.count_uses()) {}

  bool run() {
    bool changed = false;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      ir::Op& op = *graph_.ops[i];
      position_.emplace(&op, i);
      if (is_convolution(op)) convolved_.insert(op.result());
      const int64_t operand = joined_operand(op);
      if (operand < 0) continue;
      const ir::Op& maker = *op.operand(static_cast<size_t>(operand))->op;
      const ir::Attr block = ops::attr_of(op, ir::attr::block);
      const bool is_known = !block.is_none() && block == ops::attr_of(maker, ir::attr::block);
      if (is_known || op.attrs.has(ir::attr::beside)) continue;
      op.attrs.set(ir::attr::beside, operand);
      changed = true;
    }
    return changed;
  }

 private:
  bool is_convolution(const ir::Op& op) const {
    return op.name == ir::op::convolution && op.operand(0)->type.rank() == 4 &&
           ops::attr_of(op, ir::attr::transposed) == ir::Attr(false) &&
           fixed_.is_from_state(op.operand(1));
  }

  // The operand with which the op may be rounded once; -1: none.
  int64_t joined_operand(const ir::Op& op) const {
    if (op.name == ir::op::silu || op.name == ir::op::hardswish) {
      return is_joined(op.operand(0)) ? 0 : -1;
    }
    if (op.name != ir::op::add || !(ops::attr_of(op, ir::attr::alpha) == ir::Attr(1.0))) return -1;
    for (const size_t side : {0, 1}) {
      const ir::Value *value = op.operand(side), *other = op.operand(1 - side);
      if (!(value->type == op.result()->type) || !(other->type == value->type)) continue;
      if (is_joined(value) || is_normalized(*value, *other)) return static_cast<int64_t>(side);
    }
    return -1;
  }

  bool is_joined(const ir::Value* value) const {
    return convolved_.contains(value) && uses_.at(value) == 1;
  }

  bool is_normalized(const ir::Value& value, const ir::Value& other) const {
    const ir::Op& maker = *value.op;
    return maker.name == ir::op::batch_norm && maker.result() == &value &&
           ir::is_half(value.type.dtype) && uses_.at(&value) == 1 &&
           position_.at(other.op) < position_.at(&maker);
  }

  ir::Graph& graph_;
  const FixedValues& fixed_;
  std::unordered_map<const ir::Value*, int> uses_;
  std::unordered_map<const ir::Op*, size_t> position_;
  std::unordered_set<const ir::Value*> convolved_;
};

bool has_strategy(const ir::Module& module) {
  const ir::Graph* main = module.find_graph("main");
  return main != nullptr && std::any_of(main->ops.begin(), main->ops.end(), [](const auto& op) {
           return op->name == ir::op::strategy;
         });
}

}  // namespace

bool settle(ir::Module& module) {
  if (!has_strategy(module)) return false;
  const FixedValues fixed(module);
  return in_each_graph(module, [&](ir::Graph& graph) { return Settler(graph, fixed).run(); });
}

}  // namespace poptorch::rewrite
