// Every buffer in planned memory, and every part of a kernel's scratch, begins on a cache line.
#pragma once

namespace poptorch {

constexpr int alignment_bytes = 64;

// The bytes from one such beginning to the next, for a buffer of this size.
template <typename Integer>
constexpr Integer align_up(Integer bytes) {
  constexpr Integer line = alignment_bytes;
  return (bytes + line - 1) / line * line;
}

}  // namespace poptorch
