#include "run/floats/float_watch.h"

#include <string_view>

#include "support/error.h"

namespace poptorch::run {

namespace {

using assemble::Instruction;

constexpr std::string_view input_prefix = "input.";

}  // namespace

std::string NonFinite::step_text(const assemble::Program& program, int replicas) const {
  std::string text;
  const auto add = [&](bool is_one_of_many, const char* name, int64_t number) {
    if (is_one_of_many) text += concat(text.empty() ? "in " : ", ", name, " ", number);
  };
  add(program.device_iterations > 1, "device iteration", iteration);
  add(program.micro_loop >= 0, "micro-batch", micro_batch);
  for (const int64_t i : loops) add(true, "loop iteration", i);
  add(replicas > 1, "replica", replica);
  return text;
}

void FloatWatch::begin_run() {
  first_.reset();
  loops_.clear();
}

NonFinite FloatWatch::here(int64_t iteration, int replica) const {
  NonFinite found;
  found.iteration = iteration;
  found.replica = replica;
  for (const auto& [block, i] : loops_) {
    if (block == program_.device_loop) continue;
    if (block == program_.micro_loop) {
      found.micro_batch = i;
    } else {
      found.loops.push_back(i);
    }
  }
  return found;
}

// An infinity in a buffer or an argument may be a mask.
void FloatWatch::look_at_state(const assemble::State& state, const void* data, int replica,
                               int threads) {
  const bool is_buffer = state.role == "buffer";
  if (!is_recording_ || first_ || state.role == "rng") return;
  const std::string kind = kind_of_non_finite(state.own_type(), data, threads);
  if (kind.empty() || (is_buffer && kind != "NaN")) return;
  NonFinite found = here(0, replica);
  found.what = concat(state.role.empty() ? "state" : state.role, " ", state.path);
  found.condition = kind;
  first_ = found;
}

void FloatWatch::look_at_input(const Instruction& instruction, const void* data, NonFinite found,
                               int threads) {
  const assemble::Stream& stream = program_.streams[static_cast<size_t>(instruction.index)];
  if (stream.name.rfind(input_prefix, 0) != 0) return;
  if (kind_of_non_finite(stream.type, data, threads) != "NaN") return;
  found.what = concat("input ", stream.name.substr(input_prefix.size()));
  found.condition = "NaN";
  first_ = found;
}

void FloatWatch::look(const Instruction& instruction, void* const* pointers, int64_t iteration,
                      int replica, int threads) {
  if (first_) return;
  if (is_recording_ && instruction.kind == Instruction::Kind::stream_in) {
    return look_at_input(instruction, pointers[0], here(iteration, replica), threads);
  }
  if (instruction.check < 0) return;
  const auto& check = program_.checks[static_cast<size_t>(instruction.check)];
  const auto finding = find_exception(check, pointers, threads);
  if (!finding || (is_recording_ && !finding->is_in_result)) return;
  NonFinite found = here(iteration, replica);
  found.what = check.op;
  found.condition = finding->condition;
  found.element = finding->element;
  found.phase = program_.sources[static_cast<size_t>(instruction.source)].phase;
  found.place = program_.labels[static_cast<size_t>(instruction.label)];
  if (!is_recording_) raise(found);
  first_ = found;
}

void FloatWatch::raise(const NonFinite& found) const {
  const std::string step = found.step_text(program_, replicas_);
  const std::string phase = found.phase == "forward"    ? ""
                            : found.phase == "backward" ? " in the backward pass"
                                                        : " in the weight update";
  throw_user_error(concat("[", found.what, "] floating-point exception: ", found.condition, phase,
                          ". It is ", found.element, step.empty() ? "" : ", ", step,
                          ". Change the operands, or turn off "
                          "Precision.enableFloatingPointExceptions."));
}

}  // namespace poptorch::run
