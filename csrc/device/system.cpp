#include "device/system.h"

namespace poptorch::device {

namespace {

enum class Row {
#define TARGET(name, ...) name,
#include "device/targets.def"
#undef TARGET
};

}  // namespace

const std::vector<Target>& all_targets() {
  static const std::vector<Target> targets = {
#define TARGET(name, ...) {#name, __VA_ARGS__},
#include "device/targets.def"
#undef TARGET
  };
  return targets;
}

const std::vector<System>& all_systems() {
  static const std::vector<System> systems = {
#define SYSTEM(name, ipus, target, hosts) \
  {name, ipus, &all_targets()[static_cast<size_t>(Row::target)], hosts},
#include "device/systems.def"
#undef SYSTEM
  };
  return systems;
}

}  // namespace poptorch::device
