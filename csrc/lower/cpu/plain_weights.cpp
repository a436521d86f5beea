// Lets a packed convolution read its weight where it lies, if packing gains nothing on this machine
// (KernelDef::takes_unpacked): packed weights take memory on top of the module's own, which are
// shared with the host. The scale that fold_batch_norm put into the weight becomes an operand.
//
//   %1 = reshape %s {size=[64, 1, 1, 1]} : f32[64,1,1,1]
//   %2 = mul %w, %1 : f32[64,64,3,3]
//   %3 = pack_convolution %2 {input_size=[...], ...} : f32[36864]
//   %4 = packed_convolution %x, %3, %b, _ {weight_size=[64, 64, 3, 3], ...}
// =>
//   %4 = packed_convolution %x, %w, %b, _, %s {weight_size=[64, 64, 3, 3], ...}
#include "lower/cpu/pass.h"
#include "ops/kernel.h"
#include "rewrite/edit.h"

namespace poptorch::lower::cpu {

namespace {

bool is_state(const ir::Value& value) { return unmoved(&value)->op->name == ir::op::state; }

// What a weight is the product of; no scale: nullptr.
struct Factors {
  ir::Value* weight;
  ir::Value* scale = nullptr;
};

// One number for each output of a weight, reshaped to multiply it.
ir::Value* scale_of(const ir::Value& factor, const ir::Value& weight) {
  const ir::Dims expected = {weight.type.sizes[0], 1, 1, 1};
  if (factor.op->name != ir::op::reshape || factor.type.sizes != expected) return nullptr;
  ir::Value* scale = factor.op->operands[0];
  return scale->type.rank() == 1 ? scale : nullptr;
}

Factors factors_of(ir::Value* packed) {
  ir::Value* weight = packed->op->operands[0];
  if (weight->op->name != ir::op::mul) return {weight};
  for (const size_t side : {0, 1}) {
    ir::Value *plain = weight->op->operands[side], *factor = weight->op->operands[1 - side];
    if (plain->type.sizes != weight->type.sizes) continue;
    if (ir::Value* scale = scale_of(*factor, *plain)) return {plain, scale};
  }
  return {weight};
}

bool read_plainly(ir::Op& op) {
  if (op.name != ir::op::packed_convolution) return false;
  if (op.operand(1)->op->name != ir::op::pack_convolution) return false;
  const Factors factors = factors_of(op.operands[1]);
  if (!is_state(*factors.weight)) return false;  // packed or not, it takes memory
  std::vector<ir::Value*> operands = op.operands;
  operands.resize(5, nullptr);
  operands[1] = factors.weight;
  operands[4] = factors.scale;
  std::swap(op.operands, operands);
  const ops::KernelDef* kernel = ops::find_kernel(op.name);
  const bool may_ask = kernel != nullptr && kernel->takes_unpacked != nullptr;
  if (may_ask && kernel->takes_unpacked({op, 1})) return true;
  std::swap(op.operands, operands);
  return false;
}

}  // namespace

bool plain_weights(ir::Module& module) {
  bool changed = false;
  for (ir::Op* op : module.all_ops()) changed |= read_plainly(*op);
  return changed;
}

}  // namespace poptorch::lower::cpu
