#include "place/part.h"

#include <algorithm>
#include <array>

namespace poptorch::place {

namespace {

// An all_reduce of gradients is part of the backward pass; others are where the user has them.
constexpr std::array<std::string_view, 3> update_names = {"accumulate", "assign", "rng_advance"};

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
      (op.name.ends_with("_update") && op.name != "dynamic_update") ||
      std::find(update_names.begin(), update_names.end(), op.name) != update_names.end();
  return is_update ? Part::update : Part::forward;
}

}  // namespace poptorch::place
