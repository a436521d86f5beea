// The gradient of an embedding is added row by row to the other gradient of its weight. Of a table
// that is the output layer too a step touches a few rows: now no table of zeros is filled, and none
// is added as a whole. The addition may be in another block: apart, rows that occur twice would be
// summed in another order.
//
// Not where there are more indices than rows of the table. The table is then the smaller part of
// the work, and many rows added one by one to a sum over all micro-batches would round as often as
// they are many, each time by that whole sum.
//
//   %1 = embedding_backward %g, %i {num_weights=9} : f32[9,4]
//   %2 = add %1, %x : f32[9,4]
// =>
//   %2 = embedding_backward %g, %i, %x {num_weights=9} : f32[9,4]
#include "ops/annotation.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/pass.h"

namespace poptorch::rewrite {

namespace {

constexpr size_t sum_operand = 2;

bool has_few_indices(const ir::Op& rows) {
  return rows.operand(1)->type.numel() <= rows.result()->type.sizes[0];
}

// The op that makes this operand of an addition, if it can add to the other one.
const ir::Op* rows_of(const ir::Op& add, size_t operand) {
  const ir::Op* rows = add.operand(operand)->op;
  const bool fits =
      rows->name == ir::op::embedding_backward && rows->operand(sum_operand) == nullptr &&
      has_few_indices(*rows) &&
      ops::attr_of(*rows, ir::attr::scale_grad_by_freq) == ir::Attr(false) &&
      ops::attr_of(add, ir::attr::alpha) == ir::Attr(1.0) &&
      add.operand(1 - operand)->type == add.result()->type &&
      rows->result()->type == add.result()->type && is_at_one_place(*rows, add) &&
      ops::attr_of(*rows, ir::attr::recompute) == ops::attr_of(add, ir::attr::recompute);
  return fits ? rows : nullptr;
}

// Whether it is the addition that says what the op has of an annotation.
bool is_kept_by_addition(std::string_view name) {
  const ops::Annotation* annotation = ops::find_annotation(name);
  return annotation != nullptr && ops::may_carry(ir::op::add, *annotation);
}

bool fuse(ir::Graph& graph) {
  const auto uses = graph.count_uses();
  std::unordered_set<const ir::Op*> dead;
  for (const auto& op : graph.ops) {
    for (size_t i = 0; i < 2 && op->name == ir::op::add; ++i) {
      const ir::Op* rows = rows_of(*op, i);
      if (rows == nullptr || uses.at(rows->result()) != 1) continue;
      op->operands = {rows->operand(0), rows->operand(1), op->operand(1 - i)};
      op->name = rows->name;
      op->attrs.erase(ir::attr::alpha);
      for (const auto& [name, value] : rows->attrs) {
        if (!is_kept_by_addition(name)) op->attrs.set(name, value);
      }
      dead.insert(rows);
    }
  }
  erase_ops(graph, dead);
  return !dead.empty();
}

}  // namespace

bool fuse_embedding(ir::Module& module) {
  return in_each_graph(module, [](ir::Graph& graph) { return fuse(graph); });
}

}  // namespace poptorch::rewrite
