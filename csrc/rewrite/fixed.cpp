#include "rewrite/fixed.h"

#include <algorithm>

#include "ops/op_def.h"
#include "support/cpu/bf16_unit.h"

namespace poptorch::rewrite {

namespace {

// What depends on nothing but operands and attributes.
bool is_pure(const ir::Op& op) {
  if (op.name == ir::op::constant) return true;
  const bool is_fed = op.name == ir::op::input || op.name == ir::op::stream_in;
  if (is_fed || op.name == ir::op::aten) return false;
  if (ops::is_foreign(op)) return false;
  const ops::OpDef* row = ops::find_op(op.name);
  return row != nullptr && !row->effects && !row->random;
}

}  // namespace

bool is_computed_in_f32(ir::DType dtype) {
  if (dtype == ir::DType::bf16) return !computes_bf16();
  return dtype == ir::DType::f32 || dtype == ir::DType::f16;
}

FixedValues::FixedValues(const ir::Module& module) {
  for (const ir::Op* op : module.all_ops()) {
    if (op->name == ir::op::assign) assigned_.insert(op->attrs.get_string(ir::attr::path));
  }
  for (const ir::Op* op : module.all_ops()) add(*op);
}

void FixedValues::add(const ir::Op& op) {
  Kind kind = Kind::constant;
  if (op.name == ir::op::state) {
    if (assigned_.contains(op.attrs.get_string(ir::attr::path))) return;
    kind = Kind::state;
  } else if (!is_pure(op)) {
    return;
  }
  for (const ir::Value* operand : op.operands) {
    if (operand == nullptr) continue;
    const auto found = kinds_.find(operand);
    if (found == kinds_.end()) return;
    kind = std::max(kind, found->second);
  }
  for (const auto& result : op.results) kinds_.emplace(result.get(), kind);
}

bool FixedValues::is_from_state(const ir::Value* value) const {
  const auto found = kinds_.find(value);
  return found != kinds_.end() && found->second == Kind::state;
}

}  // namespace poptorch::rewrite
