// An executable: a program with its memory, ready to run any number of times.
//
// Streams and states are named in the IR. Host tensors are given as pointers for one call; they
// must be contiguous, have the dtype of the stream, and stay alive until `run` returns.
//
// Slices. An input's host tensor holds `slices_per_call` slices one after the other (dimension 0).
// With D device iterations, R replicas and G micro-steps of accumulation, the micro-step (d, r, g)
// takes slice (d * R + r) * G + g; a stream read outside the accumulation loop has G = 1; a
// `repeat` stream has one slice that every step reads. Outputs are numbered in the same way.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "run/engine.h"
#include "run/parts.h"

namespace poptorch::run {

class Executable {
 public:
  Executable(assemble::Program program, EngineOptions options);

  const std::vector<assemble::Stream>& streams() const { return engine_.program().streams; }
  const std::vector<assemble::State>& states() const { return engine_.program().states; }
  int replicas() const { return engine_.replicas(); }
  int64_t device_iterations() const { return engine_.program().device_iterations; }

  // Copies a state's bytes in or out. `replica` -1 writes to all of them. A name that does not
  // exist, or another number of bytes, is a user error. Of a sharded state these are the bytes of
  // the whole tensor: writing gives a replica its part, reading puts the parts together.
  void write_state(std::string_view path, const void* data, size_t bytes, int replica = -1);
  // Gives a large state that only the host writes the bytes of this memory, for all replicas, by
  // sharing its pages (run/memory/shared_pages.h, which says what the owner of the memory must
  // do). False, and nothing has changed, where that is not possible: write_state then.
  bool share_state(std::string_view path, void* data, size_t bytes);
  // The same with memory that is a read-only map of a file and lives longer than the executable.
  bool map_state(std::string_view path, const void* data, size_t bytes);
  // Whether a state is one of these, and the switch `share_weights` is on.
  bool can_share(std::string_view path) const;
  // Gives the memory of the program back, see Engine::release; no run until `restore`. `elsewhere`
  // names states that the caller has the values of, for all replicas, and writes again after
  // `restore`. Nothing is done where it is done already.
  void release(const Engine::Paths& elsewhere);
  void restore();
  bool has_memory() const;
  // Whether a state can be read: all can, but those that `release` found elsewhere.
  bool has_state(std::string_view path) const;
  // Whether all replicas have the same value of a state that can be read.
  bool is_same_in_replicas(std::string_view path) const;
  // Fills a state of every replica with zeros.
  void clear_state(std::string_view path);
  void read_state(std::string_view path, void* data, size_t bytes, int replica = 0) const;

  // How an output stream is returned from now on; the period is that of every_n.
  void set_output_mode(std::string_view stream, OutputMode mode, int64_t period = 1);
  // Slices that an output's host tensor holds in its present mode, or that an input's must hold.
  int64_t host_slices(std::string_view stream) const;

  // One call: `host[i]` is the host tensor of `streams()[i]`. Sizes are the caller's business. For
  // `poll` see Engine::run; it may read states, which are those of the last update, and all else
  // that waits for the end of a run is a user error in it. Threads may call at the same time: one
  // runs, the others wait.
  void run(const std::vector<void*>& host, int threads, const std::function<void()>& poll = {}) {
    Deadline deadline = this->deadline();
    run(host, threads, poll, deadline);
  }
  // The same for a call that has begun before.
  void run(const std::vector<void*>& host, int threads, const std::function<void()>& poll,
           Deadline& deadline);
  // The most time that a call may take; see Deadline. A user error if runs change states, which a
  // run that ends early would leave half written. The random state alone is whole at any time.
  void set_timeout(double seconds);
  Deadline deadline() const { return Deadline(timeout_ns_); }
  // Whether the last run went on until it called `poll`; true before the first.
  bool is_long() const { return is_long_; }
  // How many runs began, also those that failed on the way.
  int64_t runs_begun() const { return runs_begun_; }
  // Begin and end of each device iteration of the last run, in ns of CLOCK_MONOTONIC.
  std::vector<std::array<int64_t, 2>> timestamps() const;
  // When each slice of a stream that the host gets or gives was asked for and was there, in the
  // last run and the same clock.
  std::vector<std::array<int64_t, 2>> stream_times(std::string_view stream) const;
  // Starts (from zero) or stops counting the time of each op; see Engine::set_profiling.
  void set_profiling(bool is_on);
  // Makes workers wait at random, see Engine::set_delay.
  void set_delay(int64_t most_us, int seed);
  std::vector<Spent> spent() const;
  // The first value of the last run that is not finite, if there is one; a user error unless the
  // program records it.
  std::optional<NonFinite> first_non_finite() const;
  bool is_recording_floats() const { return engine_.is_recording_floats(); }
  const Engine& engine() const { return engine_; }

 private:
  using Lock = std::unique_lock<std::timed_mutex>;

  bool show_state(std::string_view path, void* data, size_t bytes, const auto& pages_of);
  Part part_of(const assemble::State& state, int replica) const;

  // A forked child has no arenas (run/memory/arena.h), nor the thread that may hold the lock.
  void check_process() const;
  // Whether this is called by the `poll` of a run.
  bool is_running_here() const { return runner_ == std::this_thread::get_id(); }
  // `what` is a user error in a run of this thread.
  void check_not_here(std::string_view what) const;
  // The end of a run of another thread.
  Lock locked(std::string_view what) const;

  Engine engine_;
  bool is_sharing_ = true;
  int process_, forks_;  // where the arenas are
  std::atomic<int64_t> runs_begun_ = 0;
  std::atomic<bool> is_long_ = true;
  std::atomic<int64_t> timeout_ns_ = Deadline::unlimited;
  std::atomic<std::thread::id> runner_ = {};  // the thread that runs it
  // One run, one state's copy, one setting at a time. Who waits for it holds no other lock: a run
  // may wait for Python's in `poll`.
  mutable std::timed_mutex mutex_;
};

}  // namespace poptorch::run
