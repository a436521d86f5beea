// Packs the fixed weights of channels-last convolutions in oneDNN's layout, and puts what follows
// on the convolution: the addition of an image of the same sizes, then an activation. Both only
// where the value between has no other use and all of it is at one place. An addition or another
// activation than relu rounds differently apart from the convolution.
//
//   %1 = convolution %x, %w, %b {layout="channels_last", ...} : f32[8,7,7,64]
//   %2 = add %1, %r : f32[8,7,7,64]
//   %3 = relu %2 : f32[8,7,7,64]
// =>
//   %4 = permute %w {dims=[0, 3, 1, 2]}
//   %5 = pack_convolution %4 {input_size=[...], ...} : f32[36864]
//   %3 = packed_convolution %x, %5, %b, %r {activation="relu", weight_size=[...], ...}
// Weights of 16-bit images are upcast before they are packed, which is done once, and results
// rounded once. Those of bf16 images stay where there is a unit for products of bf16 numbers.
#include <algorithm>
#include <array>

#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/fixed.h"
#include "rewrite/op_list.h"

namespace poptorch::lower::cpu {

namespace {

constexpr std::array activations = {ir::op::relu, ir::op::silu, ir::op::hardswish};

bool is_activation(const ir::Op& op) {
  return std::find(activations.begin(), activations.end(), op.name) != activations.end();
}

ir::Dims first_sizes(const ir::Value& image) {
  const ir::Dims& s = image.type.sizes;
  return {s[0], s[3], s[1], s[2]};
}

class Fuser {
 public:
  Fuser(ir::Graph& graph, const FixedValues& fixed)
      : graph_(graph), fixed_(fixed), list_(graph), uses_(graph.count_uses()) {}

  bool run() {
    find_patterns();
    if (patterns_.empty()) return false;
    return list_.rebuild(
        [this](const ir::Op& op) {
          const auto pattern = patterns_.find(&op);
          return pattern == patterns_.end() ? nullptr : emit(pattern->second, op);
        },
        [this](const ir::Op& op) { return inner_.contains(&op); });
  }

 private:
  struct Pattern {
    ir::Op* convolution;
    ir::Value* residual = nullptr;
    std::string activation = "none";
  };

  bool is_ours(const ir::Op& op) const {
    return op.name == ir::op::convolution &&
           ops::attr_of(op, ir::attr::layout) == ir::Attr("channels_last") &&
           op.operand(0)->type.rank() == 4 && is_computed_in_f32(op.result()->type.dtype) &&
           ops::attr_of(op, ir::attr::transposed) == ir::Attr(false) &&
           fixed_.is_from_state(op.operand(1));
  }

  // By the last op of each, which the fused one replaces.
  void find_patterns() {
    for (const auto& op : graph_.ops) {
      if (is_ours(*op)) {
        patterns_.emplace(op.get(), Pattern{op.get()});
      } else if (op->name == ir::op::add && ops::attr_of(*op, ir::attr::alpha) == ir::Attr(1.0)) {
        if (!extend_by_add(*op, 0)) extend_by_add(*op, 1);
      } else if (is_activation(*op)) {
        Pattern* before = before_of(op->operand(0));
        if (before == nullptr || before->activation != "none") continue;
        const bool is_relu = op->name == ir::op::relu;
        if (before->residual != nullptr && !is_relu) continue;  // oneDNN has no other
        if (!is_at_one_place(*before->convolution, *op)) continue;
        if (is_relu && !is_alike(*before->convolution, *op)) continue;
        Pattern pattern = *before;
        pattern.activation = op->name.text();
        extend(op->operand(0)->op, op.get(), pattern);
      }
    }
  }

  Pattern* before_of(const ir::Value* value) {
    const auto found = patterns_.find(value->op);
    return found != patterns_.end() && uses_.at(value) == 1 ? &found->second : nullptr;
  }

  bool extend_by_add(ir::Op& op, size_t side) {
    ir::Value* image = op.operand(side);
    ir::Value* other = op.operand(1 - side);
    Pattern* before = before_of(image);
    if (before == nullptr || before->residual != nullptr || before->activation != "none" ||
        !(other->type == image->type) || !is_at_one_place(*before->convolution, op)) {
      return false;
    }
    Pattern pattern = *before;
    pattern.residual = other;
    extend(image->op, &op, pattern);
    return true;
  }

  void extend(const ir::Op* from, const ir::Op* to, const Pattern& pattern) {
    patterns_.erase(from);
    inner_.insert(from);
    patterns_.emplace(to, pattern);
  }

  ir::Value* emit(const Pattern& pattern, const ir::Op& last) {
    const ir::Op& op = *pattern.convolution;
    ir::Attrs geometry;
    for (const ir::AttrName name :
         {ir::attr::stride, ir::attr::padding, ir::attr::dilation, ir::attr::groups}) {
      geometry.set(name, ops::attr_of(op, name));
    }
    ir::Attrs packing = geometry;
    packing.set(ir::attr::input_size, first_sizes(*op.operand(0)));
    ir::Value* weight = list_.add(ir::op::permute, {op.operands[1]},
                                  attrs_of({{ir::attr::dims, ir::Dims{0, 3, 1, 2}}}), op);
    ir::Attrs attrs = geometry;
    attrs.set(ir::attr::weight_size, weight->type.sizes);
    attrs.set(ir::attr::activation, pattern.activation);
    if (ir::is_half(weight->type.dtype)) {
      weight = list_.add(ir::op::cast, {weight}, attrs_of({{ir::attr::dtype, ir::DType::f32}}), op);
    }
    weight = list_.add(ir::op::pack_convolution, {weight}, packing, op);
    ir::Op& made =
        *list_.make(ir::op::packed_convolution,
                    {op.operand(0), weight, op.operand(2), pattern.residual}, attrs, op);
    made.source_location = last.source_location;
    return made.result();
  }

  ir::Graph& graph_;
  const FixedValues& fixed_;
  OpList list_;
  std::unordered_map<const ir::Value*, int> uses_;
  std::unordered_map<const ir::Op*, Pattern> patterns_;
  std::unordered_set<const ir::Op*> inner_;
};

}  // namespace

bool fuse_convolution(ir::Module& module) {
  const FixedValues fixed(module);
  return rewrite::in_each_graph(module,
                                [&](ir::Graph& graph) { return Fuser(graph, fixed).run(); });
}

}  // namespace poptorch::lower::cpu
