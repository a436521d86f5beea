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

// The same in numbers of a type.
template <typename T>
constexpr int64_t align_numbers(int64_t count) {
  constexpr int64_t number = sizeof(T);
  return align_up(count * number) / number;
}

}  // namespace poptorch
