// The graphs inside ops: bodies of loops and branches. An op names them by attributes (`@graph`, in
// lists too). Everything that walks into them finds them here, and nothing by the name of an op,
// of an attribute or of a graph.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace poptorch::ir {

// In the order of the op's attributes, which is that of their names.
std::vector<std::string> body_names(const Op& op);

// The same as graphs, which belong to the module; an internal error when it has no such graph.
std::vector<Graph*> bodies_of(const Module& module, const Op& op);

// The op that makes a value. For the result of a loop, the op of its body that makes it.
const Op& maker_of(const Module& module, const Value& value);

// Whether the op names a graph at all.
bool has_bodies(const Op& op);

// The body of an op that names one graph; an internal error when it names none, or more.
Graph& body_of(const Module& module, const Op& op);

}  // namespace poptorch::ir
