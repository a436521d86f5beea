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
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/type.h"
#include "run/engine.h"

namespace poptorch::run {

// What compile learned on the way: reports for the user, nothing that a run needs.
struct Reports {
  std::vector<std::pair<std::string, std::string>> texts;       // step -> IR text after it
  std::vector<std::pair<std::string, int64_t>> step_times_ns;   // step -> wall time
  std::map<std::string, int64_t> memory_bytes;                  // category -> bytes at the peak
  std::map<std::string, std::map<std::string, int64_t>> ops;    // phase -> op -> count
};

class Executable {
 public:
  Executable(assemble::Program program, EngineOptions options, Reports reports);

  const std::vector<assemble::Stream>& streams() const { return engine_.program().streams; }
  const std::vector<assemble::State>& states() const { return engine_.program().states; }
  int replicas() const { return engine_.replicas(); }
  int64_t device_iterations() const { return engine_.program().device_iterations; }
  const Reports& reports() const { return reports_; }
  // IR text after a step: translate, rewrite, place, schedule, plan.
  const std::string& ir(std::string_view step) const;

  // Copies a state's bytes in or out. `replica` -1 writes to all of them. A name that does not
  // exist, or another number of bytes, is a user error.
  void write_state(std::string_view path, const void* data, size_t bytes, int replica = -1);
  void read_state(std::string_view path, void* data, size_t bytes, int replica = 0) const;

  // How an output stream is returned from now on; the period is that of every_n.
  void set_output_mode(std::string_view stream, OutputMode mode, int64_t period = 1);
  // Slices that an output's host tensor holds in its present mode, or that an input's must hold.
  int64_t host_slices(std::string_view stream) const;

  // One call: `host[i]` is the host tensor of `streams()[i]`. Sizes are the caller's business.
  void run(const std::vector<void*>& host, int threads);
  // Begin and end of each device iteration of the last run, in ns of CLOCK_MONOTONIC.
  const std::vector<std::array<int64_t, 2>>& timestamps() const { return engine_.timestamps(); }

 private:
  Engine engine_;
  Reports reports_;
  mutable std::mutex mutex_;  // one run, or one state's copy, at a time
};

}  // namespace poptorch::run
