#include "ops/work.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/bodies.h"
#include "ir/copy.h"
#include "ops/layout.h"

namespace poptorch::ops {

namespace {

// Elements, those of expanded dimensions once.
double own_bytes(const ir::Type& type) {
  double elements = 1;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    const bool is_expanded = !type.strides.empty() && type.strides[d] == 0 && type.sizes[d] > 0;
    elements *= is_expanded ? 1 : static_cast<double>(type.sizes[d]);
  }
  return elements * static_cast<double>(ir::item_bytes(type.dtype));
}

// Whether the op's result is its operand seen in another way.
bool shows_operand(const ir::Op& op) {
  const OpDef* row = find_op(op.name);
  return row != nullptr && row->bytes == none && op.operand(0) != nullptr && !ir::has_bodies(op);
}

// As operand_bytes has them.
double bytes_of(const ir::Value& value) {
  double least = own_bytes(value.type);
  const ir::Value* from = &value;
  while (from->op != nullptr && shows_operand(*from->op)) {
    from = from->op->operand(0);
    least = std::min(least, own_bytes(from->type));
  }
  return least;
}

// The op as its rule sees it.
ir::Op complete(const OpDef& row, const ir::Op& op) {
  return ir::copy_apart(op, complete_attrs(row, op.attrs));
}

std::optional<double> flops_of(const OpDef& row, const WorkInput& in) {
  if (row.flops != nullptr) return row.flops(in);
  if (!row.elementwise) return std::nullopt;
  return flops_of_result<>(in);
}

Work by_row(const OpDef& row, const WorkInput& in) {
  return {flops_of(row, in),
          row.bytes != nullptr ? row.bytes(in) : operands_bytes(in) + results_bytes(in)};
}

}  // namespace

Work work_of(const ir::Op& op) {
  const OpDef& row = op_def(op.name);
  const ir::Op whole = complete(row, op);
  if (!is_channels_last(whole)) return by_row(row, {{whole}});
  const ChannelsFirst first(whole);
  return by_row(row, {{first.op()}});
}

double operand_bytes(const WorkInput& in, size_t i) {
  return in.has(i) ? bytes_of(*in.op.operand(i)) : 0;
}

double operands_bytes(const WorkInput& in, size_t first, size_t without) {
  std::set<std::pair<const ir::Op*, int>> seen;  // values may be copies: see ChannelsFirst
  double bytes = 0;
  for (size_t i = first; i < in.count(); ++i) {
    if (i == without || !in.has(i)) continue;
    const ir::Value& operand = *in.op.operand(i);
    if (seen.emplace(operand.op, operand.index).second) bytes += bytes_of(operand);
  }
  return bytes;
}

double results_bytes(const WorkInput& in) {
  double bytes = 0;
  for (const auto& result : in.op.results) bytes += own_bytes(result->type);
  return bytes;
}

double if_float(const WorkInput& in, double count) {
  const auto is_float = [](const auto& value) {
    return value != nullptr && ir::is_float(value->type.dtype);
  };
  const auto& operands = in.op.operands;
  const auto& results = in.op.results;
  const bool has_float = std::any_of(operands.begin(), operands.end(), is_float) ||
                         std::any_of(results.begin(), results.end(), is_float);
  return has_float ? count : 0;
}

double numel(const ir::Type& type) { return static_cast<double>(type.numel()); }

double none(const WorkInput&) { return 0; }

double look_up_bytes(const WorkInput& in) {
  const double results = results_bytes(in);
  return std::min(operand_bytes(in, 0), results) + operands_bytes(in, 1) + results;
}

}  // namespace poptorch::ops
