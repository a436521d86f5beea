#include "assemble/direct_streams.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "ir/bodies.h"
#include "rewrite/edit.h"

namespace poptorch::assemble {

namespace {

// Ops whose results are not written by a kernel.
constexpr std::array not_written = {ir::op::constant, ir::op::input, ir::op::state, ir::op::view,
                                    ir::op::stream_in};

bool is_written(const ir::Op& op) {
  const bool is_named = std::find(not_written.begin(), not_written.end(), op.name) !=
                        not_written.end();
  return !is_named && !ir::has_bodies(op);
}

std::unordered_set<const ir::Value*> fixed_values(const ir::Graph& graph) {
  std::unordered_set<const ir::Value*> fixed;
  for (const auto& op : graph.ops) {
    if (!ir::has_bodies(*op) && op->name != ir::op::assign) continue;
    for (ir::Value* operand : op->operands) {
      if (operand != nullptr) fixed.insert(rewrite::memory_of(operand));
    }
  }
  for (ir::Value* output : graph.outputs) fixed.insert(rewrite::memory_of(output));
  return fixed;
}

// All of the memory that the op streams; nullptr: it is not an op that streams all of a value.
const ir::Value* streamed_value(const ir::Op& op) {
  if (op.name == ir::op::stream_in) return op.result();
  if (op.name != ir::op::stream_out) return nullptr;
  const ir::Value* base = rewrite::memory_of(op.operands[0]);
  const ir::Type& type = op.operand(0)->type;
  const bool is_whole = type.is_contiguous() && type.numel() == base->type.numel();
  return is_whole && is_written(*base->op) ? base : nullptr;
}

}  // namespace

std::unordered_map<const ir::Value*, const ir::Op*> direct_streams(const ir::Graph& graph) {
  const std::unordered_set<const ir::Value*> fixed = fixed_values(graph);
  std::unordered_map<const ir::Value*, const ir::Op*> direct;
  for (const auto& op : graph.ops) {
    const ir::Value* value = streamed_value(*op);
    if (value != nullptr && !fixed.contains(value)) direct.try_emplace(value, op.get());
  }
  return direct;
}

}  // namespace poptorch::assemble
