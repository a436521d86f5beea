#include "run/host/rounds.h"

namespace poptorch::run {

namespace {

constexpr int spins = 200;  // some microseconds: what is waited for is often about to end

}  // namespace

void Rounds::start() {
  failed_.store(none, std::memory_order_relaxed);
  for (Worker& worker : workers_) {
    worker.position.store(0, std::memory_order_relaxed);
    worker.error = nullptr;
    worker.failed = none;
  }
}

void Rounds::complete(int worker, int64_t position) {
  std::atomic<int64_t>& own = workers_[static_cast<size_t>(worker)].position;
  own.store(position, std::memory_order_release);
  own.notify_all();
}

bool Rounds::wait(int worker, int64_t position, int64_t round, Gate& gate) {
  const std::atomic<int64_t>& other = workers_[static_cast<size_t>(worker)].position;
  int64_t present = other.load(std::memory_order_acquire);
  for (int i = 0; i < spins && present < position; ++i) {
    present = other.load(std::memory_order_acquire);
  }
  if (present < position) {
    gate.leave();
    while (present < position) {
      other.wait(present, std::memory_order_acquire);
      present = other.load(std::memory_order_acquire);
    }
    gate.enter();
  }
  return !is_over(round);
}

// Those that wait for this worker see that they are to end, or have what they wait for.
void Rounds::fail(int worker, int64_t round) {
  Worker& own = workers_[static_cast<size_t>(worker)];
  if (round >= own.failed) return;
  own.error = std::current_exception();
  own.failed = round;
  int64_t first = failed_.load(std::memory_order_acquire);
  while (round < first && !failed_.compare_exchange_weak(first, round)) {
  }
  complete(worker, none);
}

void Rounds::rethrow() const {
  const int64_t first = first_failed();
  for (const Worker& worker : workers_) {
    if (worker.error != nullptr && worker.failed == first) std::rethrow_exception(worker.error);
  }
}

}  // namespace poptorch::run
