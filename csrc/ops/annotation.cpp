#include "ops/annotation.h"

#include <algorithm>

#include "ops/op_def.h"

namespace poptorch::ops {

namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace

const std::vector<Annotation>& annotations() {
  static const std::vector<Annotation> table = {
#define ANNOTATION(name, rule, ops) {#name, Rule::rule, words_of(ops)},
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

bool may_carry(std::string_view op_name, const Annotation& annotation) {
  const std::vector<std::string_view>& ops = annotation.ops;
  return ops.empty() || std::find(ops.begin(), ops.end(), op_name) != ops.end();
}

bool agree(const ir::Op& a, const ir::Op& b, const Annotation& annotation) {
  if (!may_carry(a.name, annotation) || !may_carry(b.name, annotation)) return true;
  return attr_of(a, annotation.name) == attr_of(b, annotation.name);
}

}  // namespace poptorch::ops
