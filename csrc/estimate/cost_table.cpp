#include "estimate/cost_table.h"

#include <algorithm>
#include <unordered_map>

#include "ops/annotation.h"
#include "ops/op_def.h"
#include "ops/work.h"

namespace poptorch::estimate {

namespace {

// Where an op is, and what it is called, does not change its cost.
bool counts(const std::string& attr_name) {
  if (attr_name == ir::attr::salt.text || attr_name == ir::attr::path.text) return false;
  const ops::Annotation* annotation = ops::find_annotation(attr_name);
  return annotation == nullptr || attr_name == ir::attr::part.text ||
         (annotation->rule == ops::Rule::apart && attr_name != ir::attr::block.text &&
          attr_name != ir::attr::recompute.text);
}

// The types, what of the operands is read (two may be one value), and the view that shows one.
void add_operands(std::string& key, const ir::Op& op) {
  const ops::WorkInput in{{op}};
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ir::Value* operand = op.operands[i];
    if (operand == nullptr) {
      key += " _";
      continue;
    }
    const auto first = std::find(op.operands.begin(), op.operands.end(), operand);
    key += " " + std::to_string(first - op.operands.begin()) + operand->type.text() + ":" +
           std::to_string(ops::operand_bytes(in, i));
    const ir::Op* maker = operand->op;
    const bool is_seen_through = maker != nullptr && (maker->name == ir::op::permute ||
                                                      maker->name == ir::op::expand);
    if (is_seen_through) key += maker->name.text();
  }
}

// Ops with equal keys cost the same on IPUs with equal settings.
std::string key_of(const ir::Op& op) {
  std::string key = op.name.str();
  for (const auto& [name, value] : op.attrs) {
    if (!counts(name)) continue;
    // What is computed again costs what it did in the forward pass, and has the same program.
    const bool is_again = name == ir::attr::part.text && op.attrs.has(ir::attr::recompute);
    key += " " + name + "=" + (is_again ? ir::Attr("forward") : value).text();
  }
  add_operands(key, op);
  for (const auto& result : op.results) key += " >" + result->type.text();
  return key;
}

}  // namespace

void mark_summed(ir::Module& module) {
  std::unordered_map<const ir::Value*, bool> gathered;  // whether all users so far are sums
  for (const ir::Op* op : module.all_ops()) {
    for (const ir::Value* operand : op->operands) {
      if (operand == nullptr || operand->op->name != ir::op::all_gather) continue;
      const bool is_sum = op->name == ir::op::sum && op->result()->type.numel() == 1;
      const auto [at, is_new] = gathered.try_emplace(operand, is_sum);
      at->second = at->second && is_sum;
    }
  }
  for (const auto& [value, is_only_summed] : gathered) {
    if (is_only_summed) value->op->attrs.set(device::is_summed, true);
  }
}

CostTable::OfSettings& CostTable::table_of(int64_t ipu) {
  const auto [at, is_new] = numbers_.try_emplace(ipu, tables_.size());
  if (is_new) {
    const device::Settings settings = settings_of_(ipu);
    const auto equal = std::find_if(tables_.begin(), tables_.end(), [&](const OfSettings& other) {
      return other.settings == settings;
    });
    at->second = static_cast<size_t>(equal - tables_.begin());
    if (equal == tables_.end()) tables_.push_back({settings, {}});
  }
  return tables_[at->second];
}

const device::Settings& CostTable::settings(int64_t ipu) { return table_of(ipu).settings; }

const device::Cost& CostTable::of(const ir::Op& op) {
  OfSettings& table = table_of(op.attrs.get_int(ir::attr::ipu, 0));
  const auto [at, is_new] = table.costs.try_emplace(key_of(op));
  if (is_new) at->second = device::cost_of(op, target_, table.settings);
  return at->second;
}

int64_t CostTable::distinct() const {
  size_t count = 0;
  for (const OfSettings& table : tables_) count += table.costs.size();
  return static_cast<int64_t>(count);
}

}  // namespace poptorch::estimate
