#include "place/part.h"

#include <algorithm>
#include <array>

namespace poptorch::place {

namespace {

// An all_reduce of gradients is part of the backward pass; others are where the user has them.
constexpr std::array update_names = {ir::op::accumulate, ir::op::adam_update, ir::op::assign,
                                     ir::op::rng_advance, ir::op::sgd_update};

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
  if (op.attrs.get_bool(ir::attr::backward, false)) return Part::backward;
  const bool is_update =
      op.attrs.get_bool(ir::attr::update, false) ||
      std::find(update_names.begin(), update_names.end(), op.name) != update_names.end();
  return is_update ? Part::update : Part::forward;
}

}  // namespace poptorch::place
