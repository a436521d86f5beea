// Copies of ops outside of graphs, for kernels and rules that look at an op in another form.
#pragma once

#include <memory>
#include <utility>

#include "ir/graph.h"

namespace poptorch::ir {

// The same op with results of its own, whose types may be changed, and other attributes. Operands,
// and the ops that the results name, are those of the given one.
inline Op copy_apart(const Op& op, Attrs attrs) {
  Op out;
  out.name = op.name;
  out.operands = op.operands;
  out.attrs = std::move(attrs);
  out.source_location = op.source_location;
  for (const auto& result : op.results) out.results.push_back(std::make_unique<Value>(*result));
  return out;
}

// With its own attributes.
inline Op copy_apart(const Op& op) { return copy_apart(op, op.attrs); }

}  // namespace poptorch::ir
