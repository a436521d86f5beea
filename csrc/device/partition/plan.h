// The planner: how a convolution or product is cut over the tiles of an IPU, and what that costs.
// It looks for the cheapest partition whose temporary memory fits, as the planner of the vendor's
// libraries does.
#pragma once

#include <cstdint>

#include "device/partition/problem.h"
#include "device/partition/vertex.h"
#include "device/target.h"

namespace poptorch::device {

struct Splits {
  int64_t groups = 1;
  int64_t out = 1;  // groups of output channels
  int64_t in = 1;
  int64_t kernel = 1;
  int64_t batch = 1;
  int64_t outer = 1;
  int64_t inner = 1;
  // Parts that are computed one after the other; at most one of the two is above 1.
  int64_t serial_out = 1;
  int64_t serial_in = 1;

  int64_t tiles() const { return groups * out * in * kernel * batch * outer * inner; }
  int64_t depth() const { return in * kernel; }
  int64_t serial() const { return serial_out * serial_in; }
};

struct Plan {
  Form form;
  Method method;
  Splits splits;
  // Cycles of the whole product.
  double compute = 0;    // vertices, reductions, casts
  double exchange = 0;
  double rearrange = 0;  // copies into another order, exchange included
  // Bytes on the fullest tile.
  double input_bytes = 0;
  double weight_bytes = 0;
  double partial_bytes = 0;
  double temporary_bytes = 0;
  double steps = 0;  // exchanges, each followed by computing
  double planned = 0;  // cycles that the choice went by: partials move even where nothing is summed

  double cycles() const { return compute + exchange + rearrange; }
};

// No plan fits in a smaller share of a tile.
inline constexpr double least_proportion = 1.0 / 1024;

// `memory_proportion`: of a tile's bytes that may be temporary. Plans are kept by problem, so
// asking again costs nothing.
Plan plan_of(const Problem& problem, const Target& target, double memory_proportion);

}  // namespace poptorch::device
