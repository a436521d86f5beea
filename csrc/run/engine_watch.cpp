// The steps of an engine that looks at floating-point values, see run/float_watch.h.
#include "run/engine.h"

namespace poptorch::run {

void Engine::run_watched(const Instruction& instruction, int replica, int64_t inner) {
  if (is_profiling_) {
    run_timed(instruction, replica, inner);
  } else {
    run_one(instruction, replica, inner);
  }
  watch_->look(instruction, pointers(instruction, replica), iteration_, replica, threads_);
}

void Engine::watch_states() {
  watch_->begin_run();
  for (const assemble::State& state : program_.states) {
    for (int r = 0; r < replicas(); ++r) {
      watch_->look_at_state(state, state_data(state, r), r, threads_);
    }
  }
}

// What one replica gives may be no fault of the sum.
void Engine::watch_reduction(const Instruction& instruction) {
  const assemble::Collective& what =
      program_.collectives[static_cast<size_t>(instruction.index)];
  const ir::Type type{what.dtype, {what.numel}, {}};
  for (int r = 0; r < replicas(); ++r) {
    if (!kind_of_non_finite(type, pointers(instruction, r)[0], threads_).empty()) return;
  }
  try {
    for (int r = 0; r < replicas(); ++r) {
      watch_->look(instruction, pointers(instruction, r), iteration_, r, threads_);
    }
  } catch (const UserError& error) {
    throw_with_place(error, instruction);
  }
}

}  // namespace poptorch::run
