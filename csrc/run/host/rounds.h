// What the workers of a side loop tell each other: how far each round has come, and which fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <vector>

#include "run/host/gate.h"

namespace poptorch::run {

// Rounds have numbers; those of a worker increase. A round that fails ends later ones, and no
// earlier one, so that the first failure is that of a run in turn.
class Rounds {
 public:
  explicit Rounds(int workers) : workers_(static_cast<size_t>(workers)) {}

  void start();
  // The worker has completed its work up to `position`, a number that increases.
  void complete(int worker, int64_t position);
  // Waits until another worker has completed a position. False: `round`, which waits, is to end.
  bool wait(int worker, int64_t position, int64_t round, Gate& gate);
  // Called in a handler: keeps the present exception as that of a round, unless an earlier round of
  // the worker failed. In a side loop, the worker ends.
  void fail(int worker, int64_t round);
  bool is_over(int64_t round) const { return failed_.load(std::memory_order_acquire) < round; }
  // When all workers have ended: throws what the first round that failed threw.
  void rethrow() const;
  int64_t first_failed() const { return failed_.load(std::memory_order_acquire); }

  static constexpr int64_t none = std::numeric_limits<int64_t>::max();

 private:
  struct alignas(64) Worker {
    std::atomic<int64_t> position = 0;
    std::exception_ptr error;
    int64_t failed = none;
  };
  std::vector<Worker> workers_;
  std::atomic<int64_t> failed_ = none;
};

}  // namespace poptorch::run
