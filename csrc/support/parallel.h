// Work on several threads of the process's one OpenMP pool (the pool that torch uses too).
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <exception>

#include "support/ceil_div.h"
#include "support/float_mode.h"
#include "support/settings.h"

namespace poptorch {

// The first exception of the parts of a parallel region, which none may leave.
class FirstError {
 public:
  void guard(const auto& fn) noexcept {
    try {
      fn();
    } catch (...) {
      if (!is_set_.exchange(true)) error_ = std::current_exception();
    }
  }
  // After the region.
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> is_set_ = false;
  std::exception_ptr error_;
};

// The mode that the calling thread of a region has after it. `mode`: it has in the region, or had
// before; `outside`: flush_bits_outside() of the thread that started the region.
inline uint32_t mode_after_region(uint32_t mode, uint32_t outside) {
  return omp_get_thread_num() == 0 ? mode : mode & ~(flush_bits & ~outside);
}

// Calls fn(begin, end) on disjoint parts of [0, n), at most `threads` at once. Parts are multiples
// of `grain` (the last one excepted), so pass a grain worth some 5 us of work: fewer than two
// grains run inline, and a call from within a parallel region does too. How [0, n) is cut depends
// on `threads`: a caller whose result depends on the cut (a sum, say) must cut by itself into a
// fixed number of parts and let this function distribute those. All threads compute in the caller's
// floating-point mode and under its settings. What a part throws, the caller gets when all parts
// have ended: of several the first one.
void parallel_for(int threads, int64_t n, int64_t grain, const auto& fn) {
  const int64_t grains = ceil_div(n, grain);
  const int parts = static_cast<int>(std::min<int64_t>(threads, grains));
  if (parts <= 1 || omp_in_parallel()) {
    if (n > 0) fn(int64_t{0}, n);
    return;
  }
  const uint32_t caller_mode = float_mode(), outside = flush_bits_outside();
  const Settings* caller_settings = scoped_settings();
  FirstError error;
#pragma omp parallel num_threads(parts)
  {
    const uint32_t before = mode_after_region(float_mode(), outside);
    if (float_mode() != caller_mode) set_float_mode(caller_mode);
    const SettingsScope scope(caller_settings);
    const int64_t team = omp_get_num_threads();
    const int64_t part = omp_get_thread_num();
    const int64_t begin = std::min(n, grains * part / team * grain);
    const int64_t end = std::min(n, grains * (part + 1) / team * grain);
    if (begin < end) error.guard([&] { fn(begin, end); });
    if (before != caller_mode) set_float_mode(before);
  }
  error.rethrow();
}

// The same with fn(i) for each i of a part.
void parallel_for(int threads, int64_t n, int64_t grain, const std::invocable<int64_t> auto& fn) {
  parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  });
}

// Cuts [0, n) into `parts` runs, about as long as each other, and calls fn(part, begin, end) for
// each: where a part has memory of its own, or results depend on how many there are.
void parallel_parts(int threads, int64_t parts, int64_t n, const auto& fn) {
  parallel_for(threads, parts, 1,
               [&](int64_t part) { fn(part, n * part / parts, n * (part + 1) / parts); });
}

// For libraries that start parallel regions of their own: while it exists, the pool's threads flush
// denormals if the calling thread does.
class FlushingPool {
 public:
  explicit FlushingPool(int threads) : threads_(threads > 1 && is_flushing() ? threads : 0) {
    if (threads_ == 0 || omp_in_parallel()) return;
    const uint32_t outside = flush_bits_outside();
#pragma omp parallel num_threads(threads_)
    {
      before() = mode_after_region(float_mode(), outside);
      set_float_mode(float_mode() | flush_bits);
    }
  }
  ~FlushingPool() {
    if (threads_ == 0 || omp_in_parallel()) return;
    const uint32_t outside = flush_bits_outside();
#pragma omp parallel num_threads(threads_)
    {
      // The library may have let threads end, and this region starts others.
      const bool is_known = before() != 0;
      set_float_mode(is_known ? before() : mode_after_region(float_mode(), outside));
      before() = 0;
    }
  }
  FlushingPool(const FlushingPool&) = delete;
  FlushingPool& operator=(const FlushingPool&) = delete;

 private:
  static uint32_t& before() {
    thread_local uint32_t mode = 0;
    return mode;
  }

  int threads_;
};

}  // namespace poptorch
