#include "run/host/workers.h"

#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "support/cpu/float_mode.h"
#include "support/settings/settings.h"

namespace poptorch::run {

struct Workers::Team {
  // What the threads are to call, written before `calls` is counted up.
  std::optional<WorkerFunction> fn;
  const Settings* settings = nullptr;
  uint32_t mode = 0;
  uint32_t flush_bits_outside = 0;

  std::atomic<int> calls = 0;    // begun, or asked to end
  std::atomic<int> running = 0;  // threads that have not ended the present call
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;

  void work(int worker) {
    for (int seen = 0;;) {
      calls.wait(seen, std::memory_order_acquire);
      seen = calls.load(std::memory_order_acquire);
      if (is_over.load(std::memory_order_acquire)) return;
      {
        const SettingsScope scope(settings);
        const FloatMode own_mode(mode);
        poptorch::flush_bits_outside() = flush_bits_outside;
        (*fn)(worker);
      }
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void call() {
    calls.fetch_add(1, std::memory_order_release);
    calls.notify_all();
  }
};

Workers::Workers(int count) : count_(count), process_(getpid()) {}

Workers::~Workers() {
  if (team_ == nullptr) return;
  if (getpid() != process_) {
    static_cast<void>(team_.release());  // its threads cannot be joined
    return;
  }
  team_->is_over.store(true, std::memory_order_release);
  team_->call();
  for (std::thread& thread : team_->threads) thread.join();
}

void Workers::start() {
  team_ = std::make_unique<Team>();
  team_->threads.reserve(static_cast<size_t>(count_ - 1));
  for (int worker = 1; worker < count_; ++worker) {
    team_->threads.emplace_back([team = team_.get(), worker] { team->work(worker); });
  }
}

void Workers::run(WorkerFunction fn) {
  if (count_ == 1) return fn(0);
  if (team_ == nullptr) start();
  team_->fn = fn;
  team_->settings = scoped_settings();
  team_->mode = float_mode();
  team_->flush_bits_outside = flush_bits_outside();
  team_->running.store(count_ - 1, std::memory_order_relaxed);
  team_->call();
  fn(0);
  for (int left = team_->running.load(std::memory_order_acquire); left > 0;
       left = team_->running.load(std::memory_order_acquire)) {
    team_->running.wait(left, std::memory_order_acquire);
  }
}

}  // namespace poptorch::run
