// The planner of look-ups of rows and of updates by rows.
#pragma once

#include <cstdint>

#include "device/target.h"

namespace poptorch::device {

// `lookups` rows of a table of `rows` x `elements` are read, or added to.
struct SliceProblem {
  int64_t rows = 1;
  int64_t elements = 1;
  int64_t lookups = 1;
  int64_t item_bytes = 4;
  bool is_update = false;
};

struct SlicePlan {
  // Parts of the elements of a row, of the rows, and of the look-ups, on tiles of their own.
  int64_t element_splits = 1;
  int64_t row_splits = 1;
  int64_t lookup_splits = 1;
  int64_t serial = 1;  // parts of the look-ups, one after the other
  // Cycles.
  double compute = 0;
  double exchange = 0;
  double steps = 0;
  double temporary_bytes = 0;  // on the fullest tile
};

SlicePlan plan_of(const SliceProblem& problem, const Target& target, double memory_proportion);

}  // namespace poptorch::device
