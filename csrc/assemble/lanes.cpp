#include "assemble/lanes.h"

#include <algorithm>

#include "ir/bodies.h"
#include "ops/op_def.h"
#include "plan/layout.h"

namespace poptorch::assemble {

namespace {

// In order; of those that begin at one place the longest.
std::vector<Extent> sorted(std::vector<Extent> extents) {
  std::erase_if(extents, [](const Extent& extent) { return extent.begin == extent.end; });
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  const auto end = std::unique(extents.begin(), extents.end(), [](const auto& a, const auto& b) {
    return a.begin == b.begin;
  });
  extents.erase(end, extents.end());
  return extents;
}

const std::string& path_of(const ir::Op& op) { return op.attrs.get_string(ir::attr::path); }

bool is_rng_step(const ir::Op& op) {
  if (op.name != ir::op::assign || op.operand(0)->op->name != ir::op::rng_advance) return false;
  const ir::Op& present = *op.operand(0)->op->operand(0)->op;
  return present.name == ir::op::state && path_of(present) == path_of(op);
}

// How often a graph assigns a state, bodies of ops included: as often as it says so.
int assigns(const ir::Module& module, const ir::Graph& graph, const std::string& path) {
  int count = 0;
  for (const auto& op : graph.ops) {
    if (op->name == ir::op::assign && path_of(*op) == path) ++count;
    for (const ir::Graph* body : ir::bodies_of(module, *op)) count += assigns(module, *body, path);
  }
  return count;
}

}  // namespace

std::vector<Extent> find_persistent(const ir::Module& module) {
  std::vector<Extent> extents;
  for (const ir::Op* op : module.all_ops()) {
    const bool is_assign = op->name == ir::op::assign;
    if (op->name != ir::op::state && op->name != ir::op::constant && !is_assign) continue;
    const int64_t addr = is_assign ? plan::assign_addr(*op) : plan::addr_of(*op->result());
    const ir::Type& type = is_assign ? op->operand(0)->type : op->result()->type;
    extents.push_back({addr, addr + type.bytes()});
  }
  return sorted(std::move(extents));
}

std::vector<Extent> find_carried(const ir::Graph& body) {
  std::vector<Extent> extents;
  const auto add = [&](const ir::Value& value) {
    const int64_t addr = plan::addr_of(value);
    extents.push_back({addr, addr + value.type.bytes()});
  };
  for (const auto& op : body.ops) {
    if (op->name == ir::op::input) add(*op->result());
  }
  for (const ir::Value* output : body.outputs) add(*output);  // an input may be absent
  return sorted(std::move(extents));
}

int64_t find_rng_step(const ir::Module& module, const ir::Graph& body) {
  for (const auto& op : body.ops) {
    if (!is_rng_step(*op)) continue;
    return assigns(module, body, path_of(*op)) == 1 ? plan::assign_addr(*op) : -1;
  }
  return -1;
}

bool runs_user_code(const ir::Module& module) {
  const std::vector<ir::Op*> ops = module.all_ops();
  return std::any_of(ops.begin(), ops.end(), [](const ir::Op* op) {
    return op->name == ir::op::host_call || op->name == ir::op::print_tensor ||
           ops::is_foreign(*op);
  });
}

}  // namespace poptorch::assemble
