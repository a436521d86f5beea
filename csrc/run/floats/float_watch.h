// Looks at what each instruction of a run computes: for programs with floating-point exceptions, or
// that record which value first is not finite. Belongs to an engine, which calls it for each step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assemble/program.h"
#include "run/floats/float_check.h"

namespace poptorch::run {

// A value that is not finite, and where it comes from.
struct NonFinite {
  std::string what;       // the op; or `input x`, `parameter fc.weight`
  std::string condition;  // "division by zero"; of an argument or weight "NaN" or "inf"
  std::string element;
  std::string phase;  // forward | backward | update; empty: it was there before
  std::string place;  // the user's source, empty: not known
  int64_t iteration = 0;
  int64_t micro_batch = 0;
  std::vector<int64_t> loops;  // iterations of loops of the model's, the outermost first
  int replica = 0;

  // `in device iteration 1, micro-batch 0`; empty: there is one of each.
  std::string step_text(const assemble::Program& program, int replicas) const;
};

class FloatWatch {
 public:
  // `program` must outlive it. `is_recording`: findings are kept, else they are user errors.
  FloatWatch(const assemble::Program& program, bool is_recording, int replicas)
      : program_(program), is_recording_(is_recording), replicas_(replicas) {}

  // A run begins; the states have these bytes in a replica.
  void begin_run();
  void look_at_state(const assemble::State& state, const void* data, int replica, int threads);

  void enter_loop(int block) { loops_.emplace_back(block, 0); }
  void next(int64_t i) { loops_.back().second = i; }
  void leave_loop() { loops_.pop_back(); }

  // What an instruction of one replica has read and made.
  void look(const assemble::Instruction& instruction, void* const* pointers, int64_t iteration,
            int replica, int threads);

  // Of the last run: the first value that is not finite.
  const std::optional<NonFinite>& first() const { return first_; }
  bool is_recording() const { return is_recording_; }

 private:
  NonFinite here(int64_t iteration, int replica) const;
  void look_at_input(const assemble::Instruction& instruction, const void* data, NonFinite found,
                     int threads);
  [[noreturn]] void raise(const NonFinite& found) const;

  const assemble::Program& program_;
  bool is_recording_;
  int replicas_;
  std::vector<std::pair<int, int64_t>> loops_;  // block and iteration, the outermost first
  std::optional<NonFinite> first_;
};

}  // namespace poptorch::run
