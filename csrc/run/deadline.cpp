#include "run/deadline.h"

#include <chrono>
#include <cmath>

#include "support/error.h"

namespace poptorch::run {

std::unique_lock<std::timed_mutex> Deadline::lock(std::timed_mutex& mutex) {
  if (timeout_ns_ == unlimited) return std::unique_lock(mutex);
  const int64_t start = now_ns();
  const std::chrono::nanoseconds left(timeout_ns_ - (start - begun_ns_));
  std::unique_lock<std::timed_mutex> lock(mutex, left);
  waited_ns_ += now_ns() - start;
  if (!lock) expire();
  return lock;
}

void Deadline::expire() const {
  const double timeout = 1e-9 * static_cast<double>(timeout_ns_);
  const auto seconds = [](int64_t ns) { return std::round(1e-5 * static_cast<double>(ns)) / 1e4; };
  throw UserError(concat("[call] the call was stopped after ", seconds(now_ns() - begun_ns_),
                         " s (waiting for other calls of the model: ", seconds(waited_ns_),
                         " s). Its timeout is ", timeout, " s. Increase the timeout, or pass a "
                         "smaller batch; load the model once more for calls that should not "
                         "wait."),
                  "TimeoutError");
}

}  // namespace poptorch::run
