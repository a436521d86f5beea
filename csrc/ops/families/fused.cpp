#include "ops/families/fused.h"

#include <algorithm>

#include "ops/work.h"
#include "support/error.h"
#include "support/mutant.h"

namespace poptorch::ops {

namespace {

using ir::Attr;
using ir::AttrList;

const AttrList& list_of(const Attr& attr, const char* what) {
  const auto* list = std::get_if<AttrList>(&attr.value);
  USER_CHECK(list != nullptr, "[fused] ", what, " is ", attr.text(), ", not a list. Give a list.");
  return *list;
}

// One entry of `body` as it is written.
struct Entry {
  std::string name;
  std::vector<int64_t> operands;
  ir::Attrs attrs;

  explicit Entry(const Attr& attr) {
    const AttrList& items = list_of(attr, "an entry of body");
    const auto* first = items.empty() ? nullptr : std::get_if<std::string>(&items[0].value);
    USER_CHECK(first != nullptr, "[fused] the entry ", attr.text(),
               " does not begin with the name of an op. Begin it with one.");
    name = *first;
    size_t i = 1;
    for (; i < items.size() && std::holds_alternative<int64_t>(items[i].value); ++i) {
      operands.push_back(std::get<int64_t>(items[i].value));
    }
    for (; i + 1 < items.size() && std::holds_alternative<std::string>(items[i].value); i += 2) {
      attrs.set(std::get<std::string>(items[i].value), items[i + 1]);
    }
    USER_CHECK(i == items.size(), "[fused] the entry ", attr.text(),
               " is not a name, numbers of operands, then names and values of attributes. "
               "Write these.");
  }
};

std::vector<ir::Type> infer_fused(const InferInput& in) {
  std::vector<ir::Type> types;
  for (const ir::Value* output : body_graph(in.op).outputs) types.push_back(output->type);
  return types;
}

// Of all entries; each of them has a rule, as element-wise rows do.
double sum_of_entries(const WorkInput& in) {
  double flops = 0;
  for (const auto& op : body_graph(in.op).ops) flops += work_of(*op).flops.value_or(0);
  return flops;
}

// A result is written block by block, so it may take an operand that no later entry reads.
std::vector<int> places_for(const ir::Op& op, size_t result) {
  const auto count = static_cast<int64_t>(op.operands.size());
  const AttrList& body = list_of(*op.attrs.find(ir::attr::body), "body");
  const int64_t made = op.attrs.get_ints(ir::attr::out).at(result) - count;
  std::vector<bool> is_read_later(op.operands.size(), false);
  for (size_t i = static_cast<size_t>(made) + 1; i < body.size(); ++i) {
    for (const int64_t operand : Entry(body[i]).operands) {
      if (operand < count) is_read_later[static_cast<size_t>(operand)] = true;
    }
  }
  std::vector<int> places;
  for (int i = 0; i < static_cast<int>(count); ++i) {
    if (!is_read_later[static_cast<size_t>(i)]) places.push_back(i);
  }
  return places;
}

}  // namespace

bool is_elementwise(const ir::Op& op) {
  const OpDef* row = find_op(op.name);
  if (row == nullptr || !row->elementwise || op.results.size() != 1) return false;
  const bool divides = op.name == ir::op::div || op.name == ir::op::fmod ||
                       op.name == ir::op::remainder;
  const bool checks_divisor = divides && !ir::is_float(op.result()->type.dtype);
  if (checks_divisor) return false;
  if (op.name == ir::op::dropout && op.result()->type.dtype == ir::DType::f64) return false;
  return std::none_of(op.operands.begin(), op.operands.end(),
                      [](const ir::Value* operand) { return operand == nullptr; });
}

std::string fused_name(const ir::Op& fused) {
  std::string name;
  for (const Attr& entry : list_of(*fused.attrs.find(ir::attr::body), "body")) {
    name += concat(name.empty() ? "fused(" : " ", Entry(entry).name);
  }
  return name + ')';
}

ir::AttrList body_entry(const ir::Op& op, const std::vector<int64_t>& operands) {
  AttrList entry = {op.name.str()};
  for (const int64_t operand : operands) entry.emplace_back(operand);
  for (const auto& [name, value] : op.attrs) {
    if (is_annotation(name) || (MUTANT(region_forgets_alpha) && name == ir::attr::alpha)) continue;
    entry.emplace_back(name);
    entry.push_back(value);
  }
  return entry;
}

ir::Graph body_graph(const ir::Op& fused) {
  ir::Graph graph("body");
  std::vector<ir::Value*> values;
  for (size_t i = 0; i < fused.operands.size(); ++i) {
    ir::Attrs attrs;
    attrs.set(ir::attr::index, static_cast<int64_t>(i));
    values.push_back(graph.append(ir::op::input, {}, attrs, {fused.operands[i]->type})->result());
  }
  const auto value = [&](int64_t number) {
    const auto count = static_cast<int64_t>(values.size());
    USER_CHECK(number >= 0 && number < count, "[fused] number ", number, " is of no value: ",
               count, " are made before it. Use one of them.");
    return values[static_cast<size_t>(number)];
  };
  const AttrList& body = list_of(*fused.attrs.find(ir::attr::body), "body");
  USER_CHECK(!body.empty(), "[fused] body is empty, it must hold an op. Write one.");
  for (const Attr& attr : body) {
    Entry entry(attr);
    std::vector<ir::Value*> operands;
    for (const int64_t number : entry.operands) operands.push_back(value(number));
    ir::Op* op =
        graph.append(ir::OpName(entry.name), operands, std::move(entry.attrs), {ir::Type{}});
    op->result()->type = infer(*op).at(0);
    USER_CHECK(is_elementwise(*op), "[fused] ", attr.text(),
               " cannot be computed element by element. Leave it outside.");
    const ir::Dims &sizes = op->result()->type.sizes, &first = values.back()->type.sizes;
    USER_CHECK(values.size() == fused.operands.size() || sizes == first, "[fused] ", attr.text(),
               " has sizes ", Attr(sizes).text(), ", the op before it ", Attr(first).text(),
               ". Make them equal.");
    values.push_back(op->result());
  }
  for (const int64_t number : fused.attrs.get_ints(ir::attr::out)) {
    ir::Value* output = value(number);
    const auto same = std::find(graph.outputs.begin(), graph.outputs.end(), output);
    USER_CHECK(same == graph.outputs.end(), "[fused] out holds ", number,
               " twice. Use the one result.");
    graph.outputs.push_back(output);
    USER_CHECK(number >= static_cast<int64_t>(fused.operands.size()), "[fused] out holds ", number,
               ", an operand. Use the operand itself.");
  }
  return graph;
}

std::vector<OpDef> fused_ops() {
  return {
      {.name = "fused",
       .doc = "Element-wise ops computed together. An entry of `body` is an op's name, the numbers "
              "of its operands, then its attributes; operands count first, then the entries. `out` "
              "lists the numbers of the results.",
       .operands = {"tensors*"},
       .results = {"outs*"},
       .attrs = {{"body", AttrList{}, true}, {"out", AttrList{}, true}},
       .infer = infer_fused,
       .flops = sum_of_entries,
       .strided = Strided::all,
       .places_for = places_for,
       .lowered = true},
  };
}

}  // namespace poptorch::ops
