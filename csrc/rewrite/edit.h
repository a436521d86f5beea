// What several passes do to graphs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace poptorch::rewrite {

// Removes these ops; nothing may use their results any more.
void erase_ops(ir::Graph& graph, const std::unordered_set<const ir::Op*>& dead);

// Whether `run`, which is called with each graph, changed one.
bool in_each_graph(ir::Module& module, const auto& run) {
  bool changed = false;
  for (const auto& graph : module.graphs) changed |= run(*graph);
  return changed;
}

// Goes through the ops in order. The rule sees an op whose operands are replaced already; it may
// edit the op, or return values to use instead of its results (the op is then removed). True when
// an op was removed; the rule itself must keep track of what it edited.
using Rule = std::function<std::vector<ir::Value*>(ir::Op&)>;
bool replace_each(ir::Graph& graph, const Rule& rule);

// The one way to make an op that replaces an op or is added next to it: at its place in the user's
// source, in its part of the step unless `attrs` names one and, where the step place has been, on
// its IPU, in its stage and phase. It is not in the graph yet.
std::unique_ptr<ir::Op> make_like(ir::Graph& graph, const ir::Op& like, ir::OpName name,
                                  std::vector<ir::Value*> operands, ir::Attrs attrs,
                                  const std::vector<ir::Type>& types,
                                  const std::vector<std::string>& value_names = {});
// The annotations of an op alone.
ir::Attrs annotations_of(const ir::Op& op);

// Whether an op must stay although nothing uses its results.
bool has_effects(const ir::Op& op);
bool is_backward(const ir::Op& op);

// The value whose memory this one lies in: views and moves between IPUs have none of their own.
const ir::Value* memory_of(const ir::Value* value);
// What a value was before it was moved between IPUs or to streaming memory and back.
const ir::Value* unmoved(const ir::Value* value);

// Whether two ops agree in the annotations that keep ops apart, such as their block, and whether
// they are recomputed for a checkpoint.
bool is_alike(const ir::Op& a, const ir::Op& b);
// Whether two ops are on one IPU in one stage.
bool is_beside(const ir::Op& a, const ir::Op& b);
// Whether two ops are on one IPU in one stage and phase.
bool is_at_one_place(const ir::Op& a, const ir::Op& b);
// Whether one op may stand for both: they are alike and at one place.
bool belong_together(const ir::Op& a, const ir::Op& b);

// The number that every element of a `constant` or `full` has; empty when the value is neither, is
// not of one number, or has no elements.
std::optional<double> uniform_value(const ir::Module& module, const ir::Value& value);

}  // namespace poptorch::rewrite
