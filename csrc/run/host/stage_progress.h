// What the workers of a stage loop tell each other: how far the rounds in each lane have come.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "run/host/gate.h"

namespace poptorch::run {

class StageProgress {
 public:
  explicit StageProgress(size_t lanes) : lanes_(lanes) {}

  void start();
  // The round in a lane begins or ends a task.
  void step(size_t lane);
  // Something else has changed that workers wait for.
  void wake();
  // Waits as long as `awaited`, a function of `position`, names a lane that is not yet far
  // enough.
  void wait(Gate& gate, const auto& awaited) {
    std::unique_lock lock(mutex_);
    if (!awaited()) return;
    lock.unlock();
    gate.leave();
    lock.lock();
    while (const std::optional<size_t> lane = awaited()) lanes_[*lane].changed.wait(lock);
    lock.unlock();
    gate.enter();
  }
  // Steps of the rounds in a lane so far, of all one after the other. Called by `awaited`.
  int64_t position(size_t lane) const { return lanes_[lane].position; }

 private:
  struct Lane {
    int64_t position = 0;
    std::condition_variable changed;
  };

  std::mutex mutex_;
  std::vector<Lane> lanes_;
};

}  // namespace poptorch::run
