#include "ops/kernel.h"

#include <algorithm>
#include <unordered_map>

#include "ir/copy.h"
#include "support/error.h"
#include "support/loading/not_linked.h"
#include "support/loading/torch_library.h"

namespace poptorch::ops {

namespace {

// A function's static: registration runs before main, in the order the linker chose.
std::unordered_map<ir::OpName, KernelDef>& registry() {
  static std::unordered_map<ir::OpName, KernelDef> kernels;
  return kernels;
}

std::unordered_map<ir::OpName, Prepare>& half_registry() {
  static std::unordered_map<ir::OpName, Prepare> kernels;
  return kernels;
}

PrepareHalf& half_wrapper() {
  static PrepareHalf wrapper = nullptr;
  return wrapper;
}

// Of the operands and results.
bool any_type(const Call& call, const auto& test) {
  for (size_t i = 0; i < call.in_count(); ++i) {
    if (call.has_in(i) && test(call.in(i))) return true;
  }
  return std::any_of(call.op.results.begin(), call.op.results.end(),
                     [&](const auto& result) { return test(result->type); });
}

}  // namespace

bool uses_half(const Call& call) {
  return any_type(call, [](const ir::Type& type) { return ir::is_half(type.dtype); });
}

namespace {

// Whether all floating-point operands and results have one dtype; empty ones do not count. Kernels
// that read 16-bit floats take f32 for them otherwise: a weight may be f32 and its images f16.
bool has_one_float_dtype(const Call& call) {
  const ir::Type* first = nullptr;
  return !any_type(call, [&](const ir::Type& type) {
    if (!ir::is_float(type.dtype) || type.numel() == 0) return false;
    if (first == nullptr) first = &type;
    return type.dtype != first->dtype;
  });
}

}  // namespace

void register_half(PrepareHalf prepare) { half_wrapper() = prepare; }

void register_kernel(const KernelDef& def) {
  INTERNAL_CHECK(registry().emplace(def.op, def).second, "op ", def.op, " has two kernels");
}

void register_half_kernel(ir::RegisteredName op, Prepare prepare) {
  half_registry()[op] = prepare;
}

const KernelDef* find_kernel(ir::OpName op) {
  if (op == ir::op::aten || op == ir::op::host_call) load_torch();  // which registers them
  const auto at = registry().find(op);
  if (at == registry().end()) return nullptr;
  note_need("kernel.", op.text());
  return &at->second;
}

Prepared prepare(const Call& call) {
  const KernelDef* def = find_kernel(call.op.name);
  if (def == nullptr) check_is_linked("kernel ", call.op.name.text());
  USER_CHECK(def != nullptr, "[", call.op.name, "] has no kernel: ", call.op.text(),
             ". Register one in csrc/kernels, or translate it as `aten`.");
  const OpDef* row = find_op(call.op.name);
  ir::Op complete = ir::copy_apart(
      call.op, row == nullptr ? call.op.attrs : complete_attrs(*row, call.op.attrs));
  complete.operands.resize(operand_slots(call.op), nullptr);
  for (const auto& result : complete.results) result->op = &complete;
  const Call with_defaults{complete, call.threads};
  if (def->native_half || !uses_half(call)) return def->prepare(with_defaults);
  const auto half = half_registry().find(call.op.name);
  if (half != half_registry().end() && has_one_float_dtype(with_defaults)) {
    note_need("half.", call.op.name.text());
    if (Prepared own = half->second(with_defaults); own.run != nullptr) return own;
  }
  note_need("half.", "wrapper");
  if (half_wrapper() == nullptr) check_is_linked("kernels for ", "16-bit floats");
  return half_wrapper()(with_defaults, def->prepare);
}

}  // namespace poptorch::ops
