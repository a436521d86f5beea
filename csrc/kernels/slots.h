// Work that needs a buffer for each thread: it is cut into slots, at most one a thread, each with
// scratch of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/kernel.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// Items begin .. end.
struct Slot {
  int64_t begin, end;
  std::byte* scratch;
};

class Slots {
 public:
  static constexpr int64_t grain = 16384;  // elements that are worth a thread

  // n items of `elements` each, `bytes` of scratch for a slot.
  Slots(int threads, int64_t n, int64_t elements, int64_t bytes)
      : n_(n),
        count_(std::clamp<int64_t>(n * elements / grain, 1, threads)),
        bytes_(align_up(bytes)) {}

  // A kernel that calls fn(args, slot) for each slot.
  Prepared prepared(const auto& fn) const {
    const auto run = [fn, slots = *this](const Args& args) {
      parallel_for(args.threads, slots.count_, 1, [&](int64_t begin, int64_t end) {
        fn(args, Slot{slots.n_ * begin / slots.count_, slots.n_ * end / slots.count_,
                      args.scratch + begin * slots.bytes_});
      });
    };
    return {run, static_cast<size_t>(count_ * bytes_)};
  }

 private:
  int64_t n_, count_, bytes_;
};

}  // namespace poptorch::kernels
