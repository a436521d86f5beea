// The result of a batch norm with relu is computed a second time for the backward pass, from what
// is kept anyway: its operand and its statistics. So it need not be kept until then, at the cost of
// one walk through memory; the bits are the same.
//
//   %y, %mean, %invstd, _, _ = batch_norm %x, %w, %b, _, _ {relu=true} : f32[2,3,4,4], ...
//   %1 = convolution %y, ...
//   %2, %3, _ = convolution_backward %g, %y, ... {backward=true}
// =>
//   %4 = batch_norm_apply %x, %w, %b, %mean, %invstd {backward=true, relu=true} : f32[2,3,4,4]
//   %2, %3, _ = convolution_backward %g, %4, ... {backward=true}
//
// Only where the operand is read in the backward pass anyway, and so is the residual, if there is
// one: of a chain of blocks, each adding to the result of the one before, every second result is
// kept and the others are computed from those.
#include <unordered_set>

#include "ir/bodies.h"
#include "lower/cpu/pass.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"

namespace poptorch::lower::cpu {

namespace {

class Recomputer {
 public:
  explicit Recomputer(ir::Graph& graph) : graph_(graph), kept_(graph.outputs.begin(),
                                                               graph.outputs.end()) {
    for (const auto& op : graph.ops) {
      for (const ir::Value* operand : op->operands) {
        if (operand == nullptr) continue;
        (is_backward(*op) ? late_ : early_).insert(operand);
        const bool is_norm = operand->op->name == ir::op::batch_norm;
        // A loop has no place where the norm could be computed again.
        const bool is_here = !ir::has_bodies(*op) && is_beside(*op, *operand->op);
        if (is_norm && is_backward(*op) && !is_here) kept_.insert(operand);
      }
    }
    for (const auto& op : graph.ops) {
      if (op->name == ir::op::batch_norm && pays(*op)) dropped_.insert(op->result());
    }
  }

  bool run() {
    std::vector<std::unique_ptr<ir::Op>> ops;
    for (auto& op : graph_.ops) {
      for (ir::Value*& operand : op->operands) {
        const bool is_late = operand != nullptr && is_backward(*op);
        if (is_late && dropped_.contains(operand)) operand = again(operand, *op, ops);
      }
      ops.push_back(std::move(op));
    }
    graph_.ops = std::move(ops);
    return !again_.empty();
  }

 private:
  bool pays(const ir::Op& op) const {
    const ir::Value& value = *op.result();
    const bool is_wide = value.type.dtype == ir::DType::f32 || value.type.dtype == ir::DType::f64;
    return is_wide && !is_backward(op) && !op.attrs.has(ir::attr::recompute) &&
           !op.attrs.has(ir::attr::checkpoint) &&
           ops::attr_of(op, ir::attr::relu) == ir::Attr(true) && early_.contains(&value) &&
           late_.contains(&value) && !kept_.contains(&value) && stays(op.operand(0)) &&
           (op.operand(5) == nullptr || stays(op.operand(5)));
  }

  // Whether a value is kept for the backward pass.
  bool stays(const ir::Value* value) const {
    return late_.contains(value) && !dropped_.contains(value);
  }

  // In the phase of `reader`, the first one.
  ir::Value* again(const ir::Value* value, const ir::Op& reader,
                   std::vector<std::unique_ptr<ir::Op>>& ops) {
    ir::Value*& made = again_[value];
    if (made != nullptr) return made;
    const ir::Op& norm = *value->op;
    ir::Attrs attrs = norm.attrs;
    for (const ir::AttrName name : {ir::attr::momentum, ir::attr::eps, ir::attr::inplace}) {
      attrs.erase(name);
    }
    attrs.set(ir::attr::part, "backward");
    ops.push_back(make_like(graph_, reader, ir::op::batch_norm_apply, operands_of(norm),
                            std::move(attrs), {value->type}));
    ops.back()->source_location = norm.source_location;
    return made = ops.back()->result();
  }

  static std::vector<ir::Value*> operands_of(const ir::Op& norm) {
    std::vector<ir::Value*> operands = {norm.operand(0), norm.operand(1), norm.operand(2),
                                        norm.result(1), norm.result(2)};
    if (norm.operand(5) != nullptr) operands.push_back(norm.operand(5));
    return operands;
  }

  ir::Graph& graph_;
  // Outputs and what the backward pass reads elsewhere; used forward, backward.
  std::unordered_set<const ir::Value*> kept_, early_, late_;
  std::unordered_set<const ir::Value*> dropped_;              // computed again
  std::unordered_map<const ir::Value*, ir::Value*> again_;
};

}  // namespace

bool rematerialize_batch_norm(ir::Module& module) {
  return rewrite::in_each_graph(module, [](ir::Graph& graph) { return Recomputer(graph).run(); });
}

}  // namespace poptorch::lower::cpu
