#include "rewrite/edit.h"

#include <algorithm>
#include <cstring>

#include "ir/element.h"
#include "ir/part.h"
#include "ops/annotation.h"
#include "ops/op_def.h"

namespace poptorch::rewrite {

namespace {

// A splat of more elements than this is left alone: looking costs more than it can bring.
constexpr int64_t most_elements = 1 << 16;

std::optional<double> number_of(const ir::Attr& attr) {
  if (const auto* v = std::get_if<double>(&attr.value)) return *v;
  if (const auto* v = std::get_if<int64_t>(&attr.value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<bool>(&attr.value)) return *v;
  return std::nullopt;
}

bool agree(const ir::Op& a, const ir::Op& b, ops::Rule rule) {
  return std::all_of(ops::annotations().begin(), ops::annotations().end(),
                     [&](const ops::Annotation& annotation) {
                       return annotation.rule != rule || ops::agree(a, b, annotation);
                     });
}

}  // namespace

void erase_ops(ir::Graph& graph, const std::unordered_set<const ir::Op*>& dead) {
  if (dead.empty()) return;
  std::erase_if(graph.ops, [&](const auto& op) { return dead.contains(op.get()); });
}

bool replace_each(ir::Graph& graph, const Rule& rule) {
  std::unordered_map<ir::Value*, ir::Value*> instead;
  std::unordered_set<const ir::Op*> dead;
  const auto follow = [&](ir::Value*& value) {
    // What a value is replaced by was itself up to date when it was entered: one step is enough.
    const auto at = instead.find(value);
    if (at != instead.end()) value = at->second;
  };
  for (const auto& op : graph.ops) {
    for (ir::Value*& operand : op->operands) follow(operand);
    const std::vector<ir::Value*> values = rule(*op);
    if (values.empty()) continue;
    for (size_t i = 0; i < values.size(); ++i) instead.emplace(op->result(i), values[i]);
    dead.insert(op.get());
  }
  for (ir::Value*& output : graph.outputs) follow(output);
  erase_ops(graph, dead);
  return !dead.empty();
}

std::unique_ptr<ir::Op> make_like(ir::Graph& graph, const ir::Op& like, ir::OpName name,
                                  std::vector<ir::Value*> operands, ir::Attrs attrs,
                                  const std::vector<ir::Type>& types,
                                  const std::vector<std::string>& value_names) {
  for (const ops::Annotation& annotation : ops::annotations()) {
    const bool is_place = annotation.rule == ops::Rule::place;
    const bool is_part = annotation.rule == ops::Rule::origin && !attrs.has(annotation.name);
    if (!is_place && !is_part) continue;
    attrs.erase(annotation.name);
    if (const ir::Attr* attr = like.attrs.find(annotation.name)) attrs.set(annotation.name, *attr);
  }
  return graph.make(name, std::move(operands), std::move(attrs), types, like.source_location,
                    value_names);
}

ir::Attrs annotations_of(const ir::Op& op) {
  ir::Attrs kept;
  for (const auto& [name, value] : op.attrs) {
    if (ops::is_annotation(name)) kept.set(name, value);
  }
  return kept;
}

bool has_effects(const ir::Op& op) {
  const ops::OpDef* row = ops::find_op(op.name);
  return row == nullptr || row->effects;
}

bool is_backward(const ir::Op& op) { return ir::part_of(op) == ir::Part::backward; }

const ir::Value* memory_of(const ir::Value* value) {
  while (ops::is_alias(*value->op)) value = value->op->operands[0];
  return value;
}

const ir::Value* unmoved(const ir::Value* value) {
  while (ops::is_move(*value->op)) value = value->op->operands[0];
  return value;
}

bool is_alike(const ir::Op& a, const ir::Op& b) { return agree(a, b, ops::Rule::apart); }

bool is_beside(const ir::Op& a, const ir::Op& b) {
  return ops::agree(a, b, *ops::find_annotation(ir::attr::ipu)) &&
         ops::agree(a, b, *ops::find_annotation(ir::attr::stage));
}

bool is_at_one_place(const ir::Op& a, const ir::Op& b) { return agree(a, b, ops::Rule::place); }

bool belong_together(const ir::Op& a, const ir::Op& b) {
  return is_alike(a, b) && is_at_one_place(a, b);
}

std::optional<double> uniform_value(const ir::Module& module, const ir::Value& value) {
  const ir::Op& op = *value.op;
  const int64_t numel = value.type.numel();
  if (op.name == ir::op::full) return number_of(ops::attr_of(op, ir::attr::fill_value));
  if (op.name != ir::op::constant || numel == 0 || numel > most_elements) return std::nullopt;
  const std::vector<std::byte> bytes = ir::constant_bytes(module, op);
  const auto item = static_cast<size_t>(ir::item_bytes(value.type.dtype));
  // Equal to itself shifted by one element: all elements are equal.
  if (std::memcmp(bytes.data(), bytes.data() + item, bytes.size() - item) != 0) return std::nullopt;
  return ir::element_at(value.type.dtype, bytes.data(), 0);
}

}  // namespace poptorch::rewrite
