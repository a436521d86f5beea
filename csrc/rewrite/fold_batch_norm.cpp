// Puts the scale and the shift of a batch norm with running statistics into the weights and the
// bias of the convolution or linear layer before it. Only where the layer's result has no other use
// and weights and statistics are fixed: the new weights are then computed once (pass `hoist`).
// Results are rounded differently: in 16 bits once, since the new weights are f32.
//
//   %1 = convolution %x, %w, %b {...} : f32[8,64,7,7]
//   %2 = batch_norm_inference %1, %scale, %shift, %mean, %var {eps=1e-05} : f32[8,64,7,7]
// =>
//   %s = mul(%scale, rsqrt(add(%var, 1e-05)))
//   %w2 = mul(%w, reshape(%s))             %b2 = add(mul(sub(%b, %mean), %s), %shift)
//   %2 = convolution %x, %w2, %b2 {...} : f32[8,64,7,7]
#include <array>

#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/fixed.h"
#include "rewrite/op_list.h"
#include "rewrite/pass.h"
#include "support/mutant.h"

namespace poptorch::rewrite {

namespace {

bool is_plain_convolution(const ir::Op& op) {
  return op.name == ir::op::convolution &&
         ops::attr_of(op, ir::attr::transposed) == ir::Attr(false);
}

// A linear layer: the channels are the columns.
bool is_plain_linear(const ir::Op& op) {
  return op.name == ir::op::addmm && op.operand(0)->type.rank() == 1 &&
         op.operand(0)->type.sizes[0] == op.result()->type.sizes[1] &&
         ops::attr_of(op, ir::attr::alpha) == ir::Attr(1.0) &&
         ops::attr_of(op, ir::attr::beta) == ir::Attr(1.0);
}

class Folder {
 public:
  Folder(ir::Module& module, ir::Graph& graph, const FixedValues& fixed)
      : module_(module), graph_(graph), fixed_(fixed), list_(graph), uses_(graph.count_uses()) {}

  bool run() {
    return list_.rebuild([this](const ir::Op& op) { return may_fold(op) ? fold(op) : nullptr; },
                         [](const ir::Op&) { return false; });
  }

 private:
  bool may_fold(const ir::Op& norm) const {
    if (norm.name != ir::op::batch_norm_inference) return false;
    for (size_t i = 1; i < norm.operands.size(); ++i) {
      if (norm.operand(i) != nullptr && !is_fixed(norm.operand(i))) return false;
    }
    if (norm.operands.size() > 5) return false;
    const ir::Value* image = norm.operand(0);  // one of several results, maybe
    const ir::Op& layer = *image->op;
    if (!is_at_one_place(norm, layer)) return false;
    if (uses_.at(image) != 1 || image->type.dtype != norm.result()->type.dtype) return false;
    if (is_plain_convolution(layer)) {
      return is_computed_in_f32(layer.result()->type.dtype) && is_fixed(layer.operand(1)) &&
             (layer.operand(2) == nullptr || is_fixed(layer.operand(2)));
    }
    return is_plain_linear(layer) && layer.result()->type.dtype == ir::DType::f32 &&
           is_fixed(layer.operand(0)) && is_fixed(layer.operand(2));
  }

  bool is_fixed(const ir::Value* value) const {
    return is_computed_in_f32(value->type.dtype) && fixed_.contains(value);
  }

  // In the layer's block: what it reads is computed where it is.
  ir::Value* add(ir::OpName name, std::vector<ir::Value*> operands, ir::Attrs attrs,
                 const ir::Op& norm) {
    ir::Op& made = *list_.make(name, std::move(operands), std::move(attrs), norm);
    made.attrs.erase(ir::attr::block);
    const ir::Attr* block = norm.operand(0)->op->attrs.find(ir::attr::block);
    if (block != nullptr) made.attrs.set(ir::attr::block, *block);
    return made.result();
  }

  ir::Value* upcast(ir::Value* value, const ir::Op& like) {
    if (value == nullptr || !ir::is_half(value->type.dtype)) return value;
    return add(ir::op::cast, {value}, attrs_of({{ir::attr::dtype, ir::DType::f32}}), like);
  }

  ir::Value* fold(const ir::Op& norm) {
    const ir::Op& layer = *norm.operand(0)->op;
    const float eps = static_cast<float>(std::get<double>(ops::attr_of(norm, ir::attr::eps).value));
    const ir::Type one{ir::DType::f32, {1}, {}};
    auto constant =
        make_like(graph_, norm, ir::op::constant, {}, module_.constant_attrs(one, &eps), {one});
    ir::Value* number = constant->result();
    list_.take(std::move(constant));
    std::array<ir::Value*, 5> of_norm = {};  // without the image: scale, shift, mean, variance
    for (size_t i = 1; i < 5; ++i) {
      if (norm.operand(i) != nullptr) of_norm[i] = upcast(norm.operands[i], norm);
    }
    const auto [image, weight_of_norm, shift, mean, variance] = of_norm;
    ir::Value* scale = add(ir::op::add, {variance, number}, {}, norm);
    scale = add(ir::op::rsqrt, {scale}, {}, norm);
    if (weight_of_norm != nullptr) {
      scale = add(ir::op::mul, {scale, weight_of_norm}, {}, norm);
    }
    const bool is_linear = layer.name == ir::op::addmm;
    std::vector<ir::Value*> operands = layer.operands;
    operands.resize(3, nullptr);
    ir::Value*& bias = operands[is_linear ? 0 : 2];
    if (bias == nullptr) {
      bias = MUTANT(batch_norm_adds_mean) ? mean : add(ir::op::neg, {mean}, {}, norm);
    } else {
      bias = add(ir::op::sub, {upcast(bias, norm), mean}, {}, norm);
    }
    bias = add(ir::op::mul, {bias, scale}, {}, norm);
    if (shift != nullptr) bias = add(ir::op::add, {bias, shift}, {}, norm);
    if (!is_linear) {
      ir::Dims sizes(layer.operand(1)->type.sizes.size(), 1);
      sizes[0] = scale->type.sizes[0];
      scale = add(ir::op::reshape, {scale}, attrs_of({{ir::attr::size, sizes}}), norm);
    }
    ir::Value*& weight = operands[is_linear ? 2 : 1];
    weight = add(ir::op::mul, {upcast(weight, norm), scale}, {}, norm);
    return list_.add(layer.name, operands, layer.attrs, layer);
  }

  ir::Module& module_;
  ir::Graph& graph_;
  const FixedValues& fixed_;
  OpList list_;
  std::unordered_map<const ir::Value*, int> uses_;
};

}  // namespace

bool fold_batch_norm(ir::Module& module) {
  const FixedValues fixed(module);
  return in_each_graph(
      module, [&](ir::Graph& graph) { return Folder(module, graph, fixed).run(); });
}

}  // namespace poptorch::rewrite
