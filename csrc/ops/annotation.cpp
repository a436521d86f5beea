#include "ops/annotation.h"

#include <algorithm>

#include "ir/part.h"
#include "ops/op_def.h"

namespace poptorch::ops {

const std::vector<Annotation>& annotations() {
  using namespace ir::op;
  static const ir::OpName float16_partials_matmul("float16_partials_matmul");
  static const std::vector<Annotation> table = {
#define ANNOTATION(name, rule, ...) {#name, Rule::rule, {__VA_ARGS__}},
#include "ops/annotations.def"
#undef ANNOTATION
  };
  return table;
}

const Annotation* find_annotation(std::string_view name) {
  for (const Annotation& annotation : annotations()) {
    if (annotation.name == name) return &annotation;
  }
  return nullptr;
}

bool is_annotation(std::string_view attr_name) { return find_annotation(attr_name) != nullptr; }

bool may_carry(ir::OpName op_name, const Annotation& annotation) {
  if (annotation.rule == Rule::place && !ir::runs_on_ipu(op_name)) return false;
  const std::vector<ir::OpName>& ops = annotation.ops;
  return ops.empty() || std::find(ops.begin(), ops.end(), op_name) != ops.end();
}

bool agree(const ir::Op& a, const ir::Op& b, const Annotation& annotation) {
  if (!may_carry(a.name, annotation) || !may_carry(b.name, annotation)) return true;
  return attr_of(a, annotation.name) == attr_of(b, annotation.name);
}

}  // namespace poptorch::ops
