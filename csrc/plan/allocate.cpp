#include "plan/allocate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/memory/align.h"

namespace poptorch::plan {

namespace {

struct Placed {
  int64_t offset;
  int64_t end;
  Span span;
};

// The smallest gap of at least `bytes` between the placed ones that are live during `span`; the
// lowest of equal ones; else the first free byte above all of them. `placed` is sorted by offset.
int64_t best_gap(const std::vector<Placed>& placed, int64_t bytes, const Span& span) {
  int64_t best = -1;
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  int64_t free_from = 0;
  for (const Placed& other : placed) {
    if (!other.span.overlaps(span)) continue;
    const int64_t gap = other.offset - free_from;
    if (gap >= bytes && gap < best_bytes) {
      best = free_from;
      best_bytes = gap;
    }
    free_from = std::max(free_from, other.end);
  }
  return best >= 0 ? best : free_from;
}

}  // namespace

Offsets allocate(const std::vector<Request>& requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (requests[a].bytes != requests[b].bytes) return requests[a].bytes > requests[b].bytes;
    return requests[a].span.begin < requests[b].span.begin;
  });
  Offsets out;
  out.offsets.resize(requests.size(), 0);
  std::vector<Placed> placed;
  placed.reserve(requests.size());
  for (const size_t i : order) {
    const int64_t bytes = planned_bytes(requests[i].bytes);
    const int64_t offset = best_gap(placed, bytes, requests[i].span);
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [](int64_t value, const Placed& other) { return value < other.offset; });
    placed.insert(at, {offset, offset + bytes, requests[i].span});
    out.offsets[i] = offset;
    out.total = std::max(out.total, offset + bytes);
  }
  return out;
}

}  // namespace poptorch::plan
