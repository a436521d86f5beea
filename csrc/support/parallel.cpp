#include "support/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "support/ceil_div.h"
#include "support/cpu/float_mode.h"
#include "support/settings/settings.h"

namespace poptorch {

namespace {

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
uint32_t mode_after_region(uint32_t mode, uint32_t outside) {
  return omp_get_thread_num() == 0 ? mode : mode & ~(flush_bits & ~outside);
}

// Of a thread of the pool, before a FlushingPool.
uint32_t& mode_before() {
  thread_local uint32_t mode = 0;
  return mode;
}

}  // namespace

void parallel_for(int threads, int64_t n, int64_t grain, PartFunction fn) {
  const int64_t grains = ceil_div(n, grain);
  const int parts = static_cast<int>(std::min<int64_t>(threads, grains));
  if (parts <= 1 || omp_in_parallel()) {
    if (n > 0) fn(0, n);
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

FlushingPool::FlushingPool(int threads) : threads_(threads > 1 && is_flushing() ? threads : 0) {
  if (threads_ == 0 || omp_in_parallel()) return;
  const uint32_t outside = flush_bits_outside();
#pragma omp parallel num_threads(threads_)
  {
    mode_before() = mode_after_region(float_mode(), outside);
    set_float_mode(float_mode() | flush_bits);
  }
}

FlushingPool::~FlushingPool() {
  if (threads_ == 0 || omp_in_parallel()) return;
  const uint32_t outside = flush_bits_outside();
#pragma omp parallel num_threads(threads_)
  {
    // The library may have let threads end, and this region starts others.
    const bool is_known = mode_before() != 0;
    set_float_mode(is_known ? mode_before() : mode_after_region(float_mode(), outside));
    mode_before() = 0;
  }
}

}  // namespace poptorch
