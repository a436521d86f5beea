// Replaces ops that do nothing, and chains that one op can do. Results keep every bit: `x + 0.0`
// stays (it turns -0.0 into 0.0), `x + -0.0` goes.
//
//   %0 = cast %x {dtype=dtype:f32} : f32[4,8]
//   %1 = permute %0 {dims=[1, 0]} : f32[8,4]
//   %2 = permute %1 {dims=[1, 0]} : f32[4,8]
//   %3 = mul %2, %one : f32[4,8]                 // %one is full of 1.0
//   output %3                                    =>  output %x
#include <cmath>

#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/pass.h"
#include "support/mutant.h"

namespace poptorch::rewrite {

namespace {

using ir::DType;

// What replaces the op's result; nullptr: nothing does. A rule may edit the op instead and set
// `edited`.
struct Context {
  const ir::Module& module;
  bool edited = false;
};
using SimplifyRule = ir::Value* (*)(ir::Op&, Context&);

ir::Value* same_type(const ir::Op& op, ir::Value* value) {
  return value != nullptr && value->type == op.result()->type ? value : nullptr;
}

// The op that makes operand 0, when it is one of this name.
ir::Op* maker(const ir::Op& op, ir::OpName name) {
  ir::Op* before = op.operand(0)->op;
  return before->name == name ? before : nullptr;
}

bool is_uniform(const Context& context, const ir::Value* value, double wanted) {
  const auto number = uniform_value(context.module, *value);
  return number.has_value() && *number == wanted && std::signbit(*number) == std::signbit(wanted);
}

// Every value of `from` is one of `to`.
bool is_wider(DType from, DType to) {
  if (from == to || from == DType::boolean) return true;
  if (MUTANT(cast_chain_by_size)) return ir::item_bytes(from) <= ir::item_bytes(to);
  if (ir::is_float(from)) return to == DType::f64 || (to == DType::f32 && ir::is_half(from));
  if (ir::is_float(to)) {
    return to == DType::f64 ? from != DType::i64
                            : to == DType::f32 && ir::item_bytes(from) <= 2;
  }
  return ir::is_integer(to) && ir::item_bytes(from) < ir::item_bytes(to);
}

ir::Value* nothing(ir::Op& op, Context&) { return same_type(op, op.operand(0)); }

ir::Value* cast(ir::Op& op, Context& context) {
  if (ir::Value* x = same_type(op, op.operand(0))) return x;
  const ir::Op* before = maker(op, ir::op::cast);
  if (before == nullptr) return nullptr;
  const ir::Type& first = before->operand(0)->type;
  // To bool the middle type matters as little: zero stays zero in a wider one.
  if (!is_wider(first.dtype, before->result()->type.dtype)) return nullptr;
  op.operands[0] = before->operands[0];
  context.edited = true;
  return same_type(op, op.operand(0));
}

// reshape(reshape(x)) and expand(expand(x)): the last one is enough.
ir::Value* resize(ir::Op& op, Context& context) {
  if (ir::Value* x = same_type(op, op.operand(0))) return x;
  const ir::Op* before = maker(op, op.name);
  if (before == nullptr) return nullptr;
  op.operands[0] = before->operands[0];
  op.attrs.set(ir::attr::size, op.result()->type.sizes);
  context.edited = true;
  return same_type(op, op.operand(0));
}

ir::Dims wrapped(ir::Dims dims) {
  for (int64_t& dim : dims) dim += dim < 0 ? static_cast<int64_t>(dims.size()) : 0;
  return dims;
}

ir::Value* permute(ir::Op& op, Context& context) {
  const ir::Dims dims = wrapped(op.attrs.get_ints(ir::attr::dims));
  bool is_identity = true;
  for (size_t i = 0; i < dims.size(); ++i) is_identity &= dims[i] == static_cast<int64_t>(i);
  if (is_identity) return same_type(op, op.operand(0));
  const ir::Op* before = maker(op, ir::op::permute);
  if (before == nullptr) return nullptr;
  const ir::Dims first = wrapped(before->attrs.get_ints(ir::attr::dims));
  ir::Dims both;
  const bool is_swapped = MUTANT(permutes_join_backwards);
  const ir::Dims &outer = is_swapped ? first : dims, &inner = is_swapped ? dims : first;
  for (int64_t dim : outer) both.push_back(inner[static_cast<size_t>(dim)]);
  op.operands[0] = before->operands[0];
  op.attrs.set(ir::attr::dims, both);
  context.edited = true;
  return permute(op, context);
}

// A slice that takes everything keeps the sizes; only a negative step could still reorder.
ir::Value* slice(ir::Op& op, Context&) {
  const ir::Attr step = ops::attr_of(op, ir::attr::step);
  return step == ir::Attr(1) ? same_type(op, op.operand(0)) : nullptr;
}

ir::Value* join_of_one(ir::Op& op, Context&) {
  return op.operands.size() == 1 ? same_type(op, op.operand(0)) : nullptr;
}

ir::Value* neg(ir::Op& op, Context&) {
  const ir::Op* before = maker(op, ir::op::neg);
  return before == nullptr ? nullptr : same_type(op, before->operand(0));
}

// alpha=-1 turns one into the other; 1 is the default.
void drop_alpha(ir::Op& op, Context& context) {
  if (!(ops::attr_of(op, ir::attr::alpha) == ir::Attr(-1.0))) return;
  op.name = op.name == ir::op::add ? ir::op::sub : ir::op::add;
  op.attrs.erase(ir::attr::alpha);
  context.edited = true;
}

ir::Value* add_or_sub(ir::Op& op, Context& context) {
  drop_alpha(op, context);
  if (!(ops::attr_of(op, ir::attr::alpha) == ir::Attr(1.0))) return nullptr;
  // The zero that changes no float, whatever its sign, is -0.0 added or 0.0 taken away.
  const bool is_float = ir::is_float(op.result()->type.dtype);
  const double zero = is_float && op.name == ir::op::add ? -0.0 : 0.0;
  ir::Value* x = same_type(op, op.operand(0));
  if (x != nullptr && is_uniform(context, op.operand(1), zero)) return x;
  ir::Value* y = op.name == ir::op::add ? same_type(op, op.operand(1)) : nullptr;
  return y != nullptr && is_uniform(context, op.operand(0), zero) ? y : nullptr;
}

ir::Value* mul(ir::Op& op, Context& context) {
  ir::Value* x = same_type(op, op.operand(0));
  if (x != nullptr && is_uniform(context, op.operand(1), 1.0)) return x;
  ir::Value* y = same_type(op, op.operand(1));
  return y != nullptr && is_uniform(context, op.operand(0), 1.0) ? y : nullptr;
}

ir::Value* div(ir::Op& op, Context& context) {
  ir::Value* x = same_type(op, op.operand(0));
  const bool rounds = ir::is_float(op.result()->type.dtype) &&
                      !ops::attr_of(op, ir::attr::rounding_mode).is_none();
  return x != nullptr && !rounds && is_uniform(context, op.operand(1), 1.0) ? x : nullptr;
}

ir::Value* dropout(ir::Op& op, Context&) {
  return op.attrs.get_float(ir::attr::p, 1.0) == 0.0 ? same_type(op, op.operand(0)) : nullptr;
}

const std::unordered_map<ir::OpName, SimplifyRule>& rules() {
  static const std::unordered_map<ir::OpName, SimplifyRule> table = {
      {ir::op::cast, cast},
      {ir::op::clone, nothing},
      {ir::op::contiguous, nothing},
      {ir::op::reshape, resize},
      {ir::op::expand, resize},
      {ir::op::permute, permute},
      {ir::op::slice, slice},
      {ir::op::cat, join_of_one},
      {ir::op::neg, neg},
      {ir::op::add, add_or_sub},
      {ir::op::sub, add_or_sub},
      {ir::op::mul, mul},
      {ir::op::div, div},
      {ir::op::dropout, dropout},
  };
  return table;
}

bool simplify(const ir::Module& module, ir::Graph& graph) {
  Context context{module};
  const bool removed = replace_each(graph, [&](ir::Op& op) {
    const auto rule = rules().find(op.name);
    ir::Value* value = rule == rules().end() ? nullptr : rule->second(op, context);
    return value == nullptr ? std::vector<ir::Value*>() : std::vector<ir::Value*>{value};
  });
  return removed || context.edited;
}

}  // namespace

bool simplify(ir::Module& module) {
  return in_each_graph(module, [&](ir::Graph& graph) { return simplify(module, graph); });
}

}  // namespace poptorch::rewrite
