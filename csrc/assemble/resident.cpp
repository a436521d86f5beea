#include "assemble/resident.h"

#include <algorithm>

#include "plan/layout.h"

namespace poptorch::assemble {

namespace {

std::vector<Extent> merge(std::vector<Extent> extents) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::vector<Extent> merged;
  for (const Extent& extent : extents) {
    if (extent.begin == extent.end) continue;
    if (merged.empty() || extent.begin > merged.back().end) {
      merged.push_back(extent);
    } else {
      merged.back().end = std::max(merged.back().end, extent.end);
    }
  }
  return merged;
}

}  // namespace

std::vector<Extent> find_resident(const ir::Module& module, const Directs& directs,
                                  const std::set<std::string>& shareable) {
  std::vector<Extent> extents;
  const auto add = [&](int64_t addr, int64_t bytes) { extents.push_back({addr, addr + bytes}); };
  for (const ir::Op* op : module.all_ops()) {
    if (op->name == ir::op::view) continue;  // lies in its operand
    if (op->name == ir::op::state && shareable.contains(op->attrs.get_string(ir::attr::path))) {
      continue;
    }
    for (const auto& result : op->results) {
      if (!directs.contains(result.get())) add(plan::addr_of(*result), result->type.bytes());
    }
    if (op->name == ir::op::assign) add(plan::assign_addr(*op), op->operand(0)->type.bytes());
  }
  return merge(std::move(extents));
}

std::vector<Extent> find_scratch(const ir::Module& module) {
  std::vector<Extent> extents;
  for (const ir::Op* op : module.all_ops()) {
    const int64_t bytes = op->attrs.get_int(ir::attr::scratch_bytes, 0);
    if (bytes == 0) continue;
    const int64_t addr = op->attrs.get_int(ir::attr::scratch_addr);
    extents.push_back({addr, addr + bytes});
  }
  return merge(std::move(extents));
}

}  // namespace poptorch::assemble
