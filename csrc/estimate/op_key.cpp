#include "estimate/op_key.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/annotation.h"

namespace poptorch::estimate {

namespace {

// What differs between ops that compute the same: names, places, and numbers of random values.
bool is_identity(std::string_view name) {
  constexpr std::array<std::string_view, 8> names = {"block", "from",  "index",     "path",
                                                     "salt",  "depth", "recompute", "stream"};
  if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  const ops::Annotation* known = ops::find_annotation(name);
  return known != nullptr && known->rule != ops::Rule::apart;
}

}  // namespace

std::string op_key(const ir::Op& op) {
  std::string key(op.name.text());
  for (const auto& [name, value] : op.attrs) {
    if (!is_identity(name)) key += ";" + name + "=" + value.text();
  }
  for (const ir::Value* operand : op.operands) {
    key += operand == nullptr ? ",_" : "," + operand->type.text();
  }
  for (const auto& result : op.results) key += ":" + result->type.text();
  return key;
}

}  // namespace poptorch::estimate
