#include "assemble/sources.h"

#include <algorithm>
#include <array>

#include "assemble/assemble.h"
#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "support/concat.h"

namespace poptorch::assemble {

namespace {

constexpr std::array silent_ops = {ir::op::constant, ir::op::input, ir::op::state,
                                   ir::op::strategy};

std::string label_of(const ir::SourceLocation& location) {
  std::string label;
  if (!location.file.empty()) label = location.file + ':' + std::to_string(location.line);
  if (!location.module.empty()) {
    label += label.empty() ? "module \"" : ", module \"";
    label += location.module;
    label += '"';
  }
  return label;
}

std::string types_of(const ir::Op& op) {
  std::string text;
  for (const ir::Value* operand : op.operands) {
    text += text.empty() ? "" : ", ";
    text += operand == nullptr ? "_" : operand->type.text();
  }
  text += " ->";
  for (size_t i = 0; i < op.results.size(); ++i) {
    text += i == 0 ? " " : ", ";
    text += op.results[i]->type.text();
  }
  return text;
}

}  // namespace

bool is_silent(const ir::Op& op) {
  return ops::is_alias(op) ||
         std::find(silent_ops.begin(), silent_ops.end(), op.name) != silent_ops.end();
}

std::string algorithm_of(const ir::Op& op) {
  const ir::Attr* attr = op.attrs.find(ir::attr::algorithm);
  const auto* name = attr == nullptr ? nullptr : std::get_if<std::string>(&attr->value);
  return name == nullptr ? "" : *name;
}

int Sources::source(const ir::Op& op, int label) {
  program_.sources.push_back({ops::report_name(op), ir::name_of(ir::part_of(op)), types_of(op),
                              label, algorithm_of(op), ops::work_of(op)});
  return static_cast<int>(program_.sources.size()) - 1;
}

int Sources::label(const ir::SourceLocation& location) {
  const std::string text = label_of(location);
  const auto [found, is_new] = labels_.try_emplace(text, static_cast<int>(labels_.size()));
  if (is_new) program_.labels.push_back(text);
  return found->second;
}

std::map<std::string, std::map<std::string, int64_t>> op_report(const ir::Module& module,
                                                                bool algorithms) {
  std::map<std::string, std::map<std::string, int64_t>> report;
  for (const ir::Op* op : module.all_ops()) {
    if (is_silent(*op) || ir::has_bodies(*op) || op->name == ir::op::assign ||
        op->name == ir::op::stream_in || op->name == ir::op::stream_out) {
      continue;
    }
    std::string name = ops::report_name(*op);
    const std::string algorithm = algorithms ? algorithm_of(*op) : "";
    if (!algorithm.empty()) name += concat(" [", algorithm, "]");
    ++report[ir::name_of(ir::part_of(*op))][name];
  }
  return report;
}

}  // namespace poptorch::assemble
