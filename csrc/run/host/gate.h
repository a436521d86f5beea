// Where the workers of a program stop for the thread that called it: while it polls (handlers of
// signals may read states), no other worker writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace poptorch::run {

// What a worker throws at a gate after `stop`.
struct Stopped {};

class Gate {
 public:
  // Workers begin to run: so many.
  void start(int workers);
  // A worker is between two rounds of a loop.
  void pass() {
    if (is_closed_.load(std::memory_order_acquire)) stop_here();
  }
  // A worker begins to wait for a different worker, or ends; it comes back.
  void leave();
  void enter();
  // Calls fn while all other workers stand at the gate, wait or have ended. If it throws, so do
  // they when they come to the gate.
  void alone(const std::function<void()>& fn);
  bool is_stopped() const { return is_stopped_; }

 private:
  void stop_here();

  std::atomic<bool> is_closed_ = false;
  std::atomic<bool> is_stopped_ = false;
  int running_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace poptorch::run
