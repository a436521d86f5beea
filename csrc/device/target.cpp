#include "device/target.h"

#include "support/error.h"

namespace poptorch::device {

const std::vector<Target>& all_targets() {
  static const std::vector<Target> targets = {
#define TARGET(row, ...) {.name = #row, __VA_ARGS__},
#include "device/targets.def"
#undef TARGET
  };
  return targets;
}

const Target& target_named(std::string_view name) {
  std::string known;
  for (const Target& target : all_targets()) {
    if (target.name == name) return target;
    known += (known.empty() ? "" : ", ") + target.name;
  }
  throw_user_error(concat("[target] there is no target \"", name, "\". Use one of ", known, "."));
}

}  // namespace poptorch::device
