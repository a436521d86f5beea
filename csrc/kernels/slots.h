// Work that needs a buffer for each thread: it is cut into slots, at most one a thread, each with
// scratch of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "support/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

class Slots {
 public:
  static constexpr int64_t grain = 16384;  // elements that are worth a thread

  // n items of `elements` each, `bytes` of scratch for a slot.
  Slots(int threads, int64_t n, int64_t elements, int64_t bytes)
      : n_(n),
        count_(std::clamp<int64_t>(n * elements / grain, 1, threads)),
        bytes_(align_up(bytes)) {}

  size_t scratch_bytes() const { return static_cast<size_t>(count_ * bytes_); }

  // Calls fn(begin, end, scratch) for the items of each slot.
  void run(int threads, std::byte* scratch, const auto& fn) const {
    parallel_for(threads, count_, 1, [&](int64_t begin, int64_t end) {
      fn(n_ * begin / count_, n_ * end / count_, scratch + begin * bytes_);
    });
  }

 private:
  int64_t n_, count_, bytes_;
};

}  // namespace poptorch::kernels
