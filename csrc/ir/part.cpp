#include "ir/part.h"

#include "support/error.h"

namespace poptorch::ir {

const char* name_of(Part part) {
  switch (part) {
    case Part::forward: return "forward";
    case Part::backward: return "backward";
    case Part::update: break;
  }
  return "update";
}

std::optional<Part> part_from(std::string_view name) {
  for (const Part part : {Part::forward, Part::backward, Part::update}) {
    if (name == name_of(part)) return part;
  }
  return std::nullopt;
}

Part part_of(const Op& op) {
  if (!op.attrs.has(ir::attr::part)) return Part::forward;
  const std::string& name = op.attrs.get_string(ir::attr::part);
  const std::optional<Part> part = part_from(name);
  INTERNAL_CHECK(part, "`", op.text(), "` has an unknown part \"", name, "\"");
  return *part;
}

bool runs_on_ipu(OpName op_name) {
  return !(op_name == op::loop || op_name == op::strategy || op_name == op::tensor_location);
}

}  // namespace poptorch::ir
