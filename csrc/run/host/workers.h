// Threads that run parts of one program side by side.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>

namespace poptorch::run {

// Refers to fn(worker), which must outlive it.
class WorkerFunction {
 public:
  template <std::invocable<int> Fn>
  explicit WorkerFunction(const Fn& fn) : fn_(&fn), call_(&call<Fn>) {}

  void operator()(int worker) const { call_(fn_, worker); }

 private:
  template <typename Fn>
  static void call(const void* fn, int worker) {
    (*static_cast<const Fn*>(fn))(worker);
  }

  const void* fn_;
  void (*call_)(const void*, int);
};

// The thread that calls is worker 0; the others start at the first call and end with the object. In
// a fork of the process they do not exist: only the destructor may be called there.
class Workers {
 public:
  explicit Workers(int count);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return count_; }
  // Calls fn(worker) for each worker at the same time, under the caller's settings and in its
  // floating-point mode, and returns when all have ended. `fn` must not throw.
  void run(WorkerFunction fn);
  void run(const std::invocable<int> auto& fn) { run(WorkerFunction(fn)); }

 private:
  struct Team;
  void start();

  int count_;
  int process_;
  std::unique_ptr<Team> team_;  // null: not started
};

}  // namespace poptorch::run
