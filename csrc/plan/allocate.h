// Offsets for buffers that are each live for a span of time.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/timeline.h"

namespace poptorch::plan {

struct Request {
  int64_t bytes = 0;
  Span span;
};

// Greedy by size: the largest first, each into the smallest gap that the buffers living at the same
// time leave. Offsets are multiples of 64; requests of no bytes have one to themselves, too.
// `total` is where the last one ends.
struct Offsets {
  std::vector<int64_t> offsets;
  int64_t total = 0;
};
Offsets allocate(const std::vector<Request>& requests);

}  // namespace poptorch::plan
