// What several passes do to graphs.
#pragma once

#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace poptorch::rewrite {

// Removes these ops; nothing may use their results any more.
void erase_ops(ir::Graph& graph, const std::unordered_set<const ir::Op*>& dead);

// Goes through the ops in order. The rule sees an op whose operands are replaced already; it may
// edit the op, or return values to use instead of its results (the op is then removed). True when
// an op was removed; the rule itself must remember what it edited.
using Rule = std::function<std::vector<ir::Value*>(ir::Op&)>;
bool replace_each(ir::Graph& graph, const Rule& rule);

bool is_backward(const ir::Op& op);

// The value whose memory this one lies in.
const ir::Value* memory_of(const ir::Value* value);

// Whether one op may stand for both: they agree in the annotations that keep ops apart, such as
// their block, and whether they are recomputed for a checkpoint.
bool belong_together(const ir::Op& a, const ir::Op& b);

// The number that every element of a `constant` or `full` has; empty when the value is neither, is
// not of one number, or has no elements.
std::optional<double> uniform_value(const ir::Module& module, const ir::Value& value);

}  // namespace poptorch::rewrite
