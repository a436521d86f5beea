#include "rewrite/op_list.h"

#include "ops/op_def.h"

namespace poptorch::rewrite {

// `like` gives the place and what every op may carry: where it runs, in which phase.
ir::Op* OpList::make(std::string name, std::vector<ir::Value*> operands, ir::Attrs attrs,
                     const ir::Op& like) {
  ir::Op bare;
  bare.name = name;
  bare.operands = operands;
  bare.attrs = attrs;
  const std::vector<ir::Type> types = ops::infer(bare);
  for (const auto& [key, value] : like.attrs) {
    if (ops::is_annotation(key) && !attrs.has(key)) attrs.set(key, value);
  }
  ops_.push_back(
      graph_.make(std::move(name), std::move(operands), std::move(attrs), types, like.place));
  return ops_.back().get();
}

ir::Attrs attrs_of(std::initializer_list<ir::Attrs::Item> items) {
  ir::Attrs attrs;
  for (const auto& [name, value] : items) attrs.set(name, value);
  return attrs;
}

}  // namespace poptorch::rewrite
