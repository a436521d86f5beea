#include "plan/layout.h"

#include <algorithm>

#include "plan/allocate.h"
#include "support/error.h"
#include "support/memory/align.h"

namespace poptorch::plan {

int64_t addr_of(const ir::Value& value) {
  const ir::Op& op = *value.op;
  const ir::Attr* addr = op.attrs.find(ir::attr::addr);
  INTERNAL_CHECK(addr != nullptr, "`", op.text(), "` has no addr");
  if (const auto* one = std::get_if<int64_t>(&addr->value)) {
    INTERNAL_CHECK(value.index == 0, "`", op.text(), "` has one addr for several results");
    return *one;
  }
  const auto* all = std::get_if<ir::AttrList>(&addr->value);
  INTERNAL_CHECK(all != nullptr && all->size() == op.results.size(), "`", op.text(), "` has addr ",
                 addr->text(), " for ", op.results.size(), " results");
  const auto* own = std::get_if<int64_t>(&(*all)[static_cast<size_t>(value.index)].value);
  INTERNAL_CHECK(own != nullptr, "`", op.text(), "` has an addr that is not an integer");
  return *own;
}

int64_t assign_addr(const ir::Op& assign) { return assign.attrs.get_int(ir::attr::addr); }

int inplace_operand(const ir::Value& result) {
  if (!result.op->attrs.has(ir::attr::inplace)) return -1;
  const ir::Dims operands = result.op->attrs.get_ints(ir::attr::inplace);
  const auto index = static_cast<size_t>(result.index);
  return index < operands.size() ? static_cast<int>(operands[index]) : -1;
}

std::set<std::string> shareable_states(const ir::Module& module) {
  std::set<std::string> found, assigned;
  for (const ir::Op* op : module.all_ops()) {
    if (op->name == ir::op::assign) assigned.insert(op->attrs.get_string(ir::attr::path));
    if (op->name == ir::op::state && op->result()->type.bytes() >= shareable_bytes) {
      found.insert(op->attrs.get_string(ir::attr::path));
    }
  }
  std::erase_if(found, [&](const std::string& path) { return assigned.contains(path); });
  return found;
}

int64_t arena_bytes(const ir::Module& module) {
  int64_t end = 0;
  for (const ir::Op* op : module.all_ops()) {
    for (const auto& result : op->results) {
      end = std::max(end, addr_of(*result) + result->type.bytes());
    }
    if (op->name == ir::op::assign) {
      end = std::max(end, assign_addr(*op) + op->operand(0)->type.bytes());
    }
    const int64_t scratch_bytes = op->attrs.get_int(ir::attr::scratch_bytes, 0);
    if (scratch_bytes > 0) {
      end = std::max(end, op->attrs.get_int(ir::attr::scratch_addr) + scratch_bytes);
    }
  }
  return align_up(end);
}

}  // namespace poptorch::plan
