// Memory that a thread keeps for the next call of what needs it, outside of every plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "support/memory/align.h"

namespace poptorch {

// One thread_local object for each use: what it gives is the caller's until the same thread calls
// again, holds anything, and begins on a cache line.
class ThreadMemory {
 public:
  template <typename T>
  T* numbers(int64_t count) {
    const size_t lines = align_up(static_cast<size_t>(count) * sizeof(T)) / sizeof(Line);
    if (lines > size_) {
      own_ = std::make_unique_for_overwrite<Line[]>(lines);
      size_ = lines;
    }
    return reinterpret_cast<T*>(own_.get());
  }

 private:
  struct alignas(alignment_bytes) Line {
    std::byte bytes[alignment_bytes];
  };
  std::unique_ptr<Line[]> own_;
  size_t size_ = 0;
};

}  // namespace poptorch
