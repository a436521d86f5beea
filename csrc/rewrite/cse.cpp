// Computes equal expressions once. Equal are ops of the same name, operands, attributes and result
// types; so random ops need the same salt, and an op that a checkpoint recomputes (`recompute=1`)
// is never merged with the original. Ops with effects are left alone, operators of other libraries
// than PyTorch's, which may draw numbers, and moves, which place has put in as often as they are to
// happen. The first op keeps its place.
//
//   %0 = relu %x : f32[4]
//   %1 = relu %x : f32[4]              %0 = relu %x : f32[4]
//   %2 = add %0, %1 : f32[4]       =>  %2 = add %0, %0 : f32[4]
#include "ops/annotation.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "rewrite/pass.h"
#include "support/mutant.h"

namespace poptorch::rewrite {

namespace {

// Whether the op was written by the backward pass says nothing about what it computes.
bool counts(const ir::Attrs::Item& item) {
  const ops::Annotation* annotation = ops::find_annotation(item.first);
  return annotation == nullptr || annotation->rule != ops::Rule::origin;
}

// Everything that must be equal but the operands, as text.
std::string description(const ir::Op& op) {
  std::string out = op.name.str();
  for (const ir::Attrs::Item& item : op.attrs) {
    if (!counts(item)) continue;
    out += ' ';
    out += item.first;
    out += '=';
    out += item.second.text();
  }
  for (const auto& result : op.results) {
    out += ' ';
    const ir::Type& type = result->type;
    out += MUTANT(cse_ignores_strides) ? ir::Type{type.dtype, type.sizes, {}}.text() : type.text();
  }
  return out;
}

struct Key {
  std::string description;
  std::vector<ir::Value*> operands;
  bool operator==(const Key&) const = default;
};

struct HashKey {
  size_t operator()(const Key& key) const {
    size_t hash = std::hash<std::string>()(key.description);
    for (const ir::Value* operand : key.operands) {
      hash = (hash ^ std::hash<const ir::Value*>()(operand)) * 0x9e3779b97f4a7c15;
    }
    return hash;
  }
};

bool may_merge(const ir::Op& op) {
  const ops::OpDef* row = ops::find_op(op.name);
  if (row == nullptr || row->effects || op.results.empty()) return false;
  return !ops::is_foreign(op) && !ops::is_move(op);
}

bool cse(ir::Graph& graph) {
  std::unordered_map<Key, const ir::Op*, HashKey> known;
  return replace_each(graph, [&](ir::Op& op) {
    std::vector<ir::Value*> same;
    if (!may_merge(op)) return same;
    const auto [first, is_new] = known.emplace(Key{description(op), op.operands}, &op);
    if (is_new) return same;
    for (const auto& result : first->second->results) same.push_back(result.get());
    return same;
  });
}

}  // namespace

bool cse(ir::Module& module) {
  return in_each_graph(module, [](ir::Graph& graph) { return cse(graph); });
}

}  // namespace poptorch::rewrite
