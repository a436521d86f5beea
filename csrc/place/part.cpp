#include "place/part.h"

#include <algorithm>
#include <array>

namespace poptorch::place {

namespace {

constexpr std::array<std::string_view, 4> update_names = {"accumulate", "all_reduce", "assign",
                                                          "rng_advance"};

}  // namespace

const char* name_of(Part part) {
  switch (part) {
    case Part::forward: return "forward";
    case Part::backward: return "backward";
    case Part::update: break;
  }
  return "update";
}

Part part_of(const ir::Op& op) {
  if (op.attrs.get_bool("backward", false)) return Part::backward;
  const bool is_update =
      op.name.ends_with("_update") ||
      std::find(update_names.begin(), update_names.end(), op.name) != update_names.end();
  return is_update ? Part::update : Part::forward;
}

}  // namespace poptorch::place
