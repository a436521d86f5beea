#include "ir/bodies.h"

#include <algorithm>

#include "support/error.h"

namespace poptorch::ir {

namespace {

// Calls fn(name) for each graph that the attribute names, until it returns true.
bool any_name(const Attr& attr, const auto& fn) {
  if (const auto* ref = std::get_if<GraphRef>(&attr.value)) return fn(ref->name);
  const auto* items = std::get_if<AttrList>(&attr.value);
  return items != nullptr && std::any_of(items->begin(), items->end(),
                                         [&](const Attr& item) { return any_name(item, fn); });
}

bool any_name(const Op& op, const auto& fn) {
  return std::any_of(op.attrs.begin(), op.attrs.end(),
                     [&](const Attrs::Item& item) { return any_name(item.second, fn); });
}

}  // namespace

std::vector<std::string> body_names(const Op& op) {
  std::vector<std::string> names;
  any_name(op, [&](const std::string& name) {
    names.push_back(name);
    return false;
  });
  return names;
}

std::vector<Graph*> bodies_of(const Module& module, const Op& op) {
  std::vector<Graph*> bodies;
  for (const std::string& name : body_names(op)) {
    bodies.push_back(module.find_graph(name));
    INTERNAL_CHECK(bodies.back() != nullptr, "the graph @", name, " of `", op.text(),
                   "` is not in the module");
  }
  return bodies;
}

const Op& maker_of(const Module& module, const Value& value) {
  const std::vector<Graph*> bodies = bodies_of(module, *value.op);
  if (bodies.empty()) return *value.op;
  return maker_of(module, *bodies[0]->outputs.at(static_cast<size_t>(value.index)));
}

bool has_bodies(const Op& op) {
  return any_name(op, [](const std::string&) { return true; });
}

Graph& body_of(const Module& module, const Op& op) {
  const std::vector<Graph*> bodies = bodies_of(module, op);
  INTERNAL_CHECK(bodies.size() == 1, "`", op.text(), "` names ", bodies.size(), " graphs, not one");
  return *bodies[0];
}

}  // namespace poptorch::ir
