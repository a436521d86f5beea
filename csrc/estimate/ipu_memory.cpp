#include "estimate/ipu_memory.h"

#include <algorithm>
#include <memory>

#include "place/work_report.h"
#include "support/error.h"

namespace poptorch::estimate {

namespace {

// The most bytes that are live for a time at an op of the IPU.
int64_t peak_bytes(const Holdings& holdings, int64_t ipu) {
  std::vector<int64_t> change;
  const auto add = [&](int position, int64_t bytes) {
    const auto index = static_cast<size_t>(position);
    if (change.size() <= index) change.resize(index + 1);
    change[index] += bytes;
  };
  for (const Holding& one : holdings.all) {
    if (one.ipu != ipu || one.is_always) continue;
    add(one.span.begin, one.bytes);
    add(one.span.end + 1, -one.bytes);
  }
  int64_t live = 0, most = 0;
  size_t at = 0;
  for (const Turn& turn : holdings.turns) {
    if (turn.ipu != ipu) continue;
    const auto end = std::min(change.size(), static_cast<size_t>(turn.position) + 1);
    for (; at < end; ++at) live += change[at];
    most = std::max(most, live);
  }
  return most;
}

}  // namespace

std::vector<CategoryBytes> ipu_memory(const Holdings& holdings) {
  std::vector<CategoryBytes> rows(static_cast<size_t>(holdings.ipus));
  for (const Holding& one : holdings.all) {
    if (!one.is_always) continue;
    rows[static_cast<size_t>(one.ipu)][static_cast<size_t>(one.category)] += one.bytes;
  }
  for (int64_t ipu = 0; ipu < holdings.ipus; ++ipu) {
    rows[static_cast<size_t>(ipu)][static_cast<size_t>(Category::activations)] +=
        peak_bytes(holdings, ipu);
  }
  return rows;
}

std::vector<CategoryBytes> ipu_memory(std::string_view text) try {
  const std::unique_ptr<ir::Module> module = place::parse_placed(text);
  return ipu_memory(find_holdings(*module));
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

}  // namespace poptorch::estimate
