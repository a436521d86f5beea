// The time that a call may take: what it waits for other calls, and its run.
#pragma once

#include <cstdint>
#include <mutex>

#include "run/clock.h"

namespace poptorch::run {

// Begins when it is made. A call that is late ends by a user error of the kind TimeoutError.
class Deadline {
 public:
  explicit Deadline(int64_t timeout_ns) : timeout_ns_(timeout_ns), begun_ns_(now_ns()) {}

  // Waits for other calls, at most as long as the call may take.
  std::unique_lock<std::timed_mutex> lock(std::timed_mutex& mutex);
  // Time that does not count.
  void exclude(int64_t ns) { begun_ns_ += ns; }
  void check() const {
    if (timeout_ns_ != unlimited && now_ns() - begun_ns_ > timeout_ns_) expire();
  }

  static constexpr int64_t unlimited = 0;

 private:
  [[noreturn]] void expire() const;

  int64_t timeout_ns_;
  int64_t begun_ns_;
  int64_t waited_ns_ = 0;
};

}  // namespace poptorch::run
