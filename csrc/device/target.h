// Kinds of IPUs: the rows of targets.def, and machines that users describe.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace poptorch::device {

// The members are those of target_fields.def, which has their meanings.
struct Target {
  std::string name;
#define FIELD(type, member, least, meaning) type member = 0;
#include "device/target_fields.def"
#undef FIELD
  std::string source;

  auto operator<=>(const Target&) const = default;
};

const std::vector<Target>& all_targets();
// The row of that name; a user error that lists the names when there is none.
const Target& target_named(std::string_view name);

}  // namespace poptorch::device
