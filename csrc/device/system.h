// Systems of several IPUs: the rows of systems.def.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/target.h"

namespace poptorch::device {

struct System {
  std::string_view name;
  int64_t ipus;
  const Target* target;
  int64_t hosts;
};

const std::vector<System>& all_systems();

}  // namespace poptorch::device
