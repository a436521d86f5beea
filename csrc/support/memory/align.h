// Every buffer in planned memory, and every part of a kernel's scratch, begins on a cache line.
#pragma once

#include <cstdint>

namespace poptorch {

constexpr int alignment_bytes = 64;

// The bytes from one such beginning to the next, for a buffer of this size.
template <typename Integer>
constexpr Integer align_up(Integer bytes) {
  constexpr Integer line = alignment_bytes;
  return (bytes + line - 1) / line * line;
}

// What a buffer takes of planned memory: a line at least, so that an empty one has an address that
// no other buffer has at the same time.
template <typename Integer>
constexpr Integer planned_bytes(Integer bytes) {
  return align_up(bytes > 0 ? bytes : Integer{1});
}

// The bytes of align_up in numbers of a type.
template <typename T>
constexpr int64_t align_numbers(int64_t count) {
  constexpr int64_t number = sizeof(T);
  return align_up(count * number) / number;
}

}  // namespace poptorch
