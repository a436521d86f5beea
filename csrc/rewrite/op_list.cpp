#include "rewrite/op_list.h"

#include "ops/annotation.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"

namespace poptorch::rewrite {

// `like` gives the place and, as far as the op may carry them, the annotations.
ir::Op* OpList::make(ir::OpName name, std::vector<ir::Value*> operands, ir::Attrs attrs,
                     const ir::Op& like) {
  ir::Op bare;
  bare.name = name;
  bare.operands = operands;
  bare.attrs = attrs;
  const std::vector<ir::Type> types = ops::infer(bare);
  for (const auto& [key, value] : like.attrs) {
    const ops::Annotation* annotation = ops::find_annotation(key);
    if (annotation == nullptr || attrs.has(key)) continue;
    if (ops::may_carry(name, *annotation)) attrs.set(key, value);
  }
  ops_.push_back(make_like(graph_, like, name, std::move(operands), std::move(attrs), types));
  return ops_.back().get();
}

ir::Attrs attrs_of(std::initializer_list<std::pair<ir::AttrName, ir::Attr>> items) {
  ir::Attrs attrs;
  for (const auto& [name, value] : items) attrs.set(name, value);
  return attrs;
}

}  // namespace poptorch::rewrite
