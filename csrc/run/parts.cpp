#include "run/parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "support/ceil_div.h"

namespace poptorch::run {

Part::Part(int64_t numel, int64_t shards, int64_t r) : length(ceil_div(numel, shards)) {
  first = std::min(r * length, std::max<int64_t>(numel - 1, 0));
  count = std::min(length, numel - first);
  if (r * length >= numel) count = std::min<int64_t>(count, 1);
}

void Part::write(const void* whole, void* part, int64_t bytes) const {
  std::memcpy(part, static_cast<const std::byte*>(whole) + first * bytes,
              static_cast<size_t>(count * bytes));
  fill(part, bytes);
}

void Part::read(const void* part, void* whole, int64_t bytes) const {
  std::memcpy(static_cast<std::byte*>(whole) + first * bytes, part,
              static_cast<size_t>(count * bytes));
}

void Part::fill(void* part, int64_t bytes) const {
  auto* items = static_cast<std::byte*>(part);
  for (int64_t i = count; i < length; ++i) {
    std::memcpy(items + i * bytes, items + (count - 1) * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace poptorch::run
