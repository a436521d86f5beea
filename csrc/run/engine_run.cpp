// A run of an engine: what all replicas do together.
#include <algorithm>

#include "run/clock.h"
#include "run/engine.h"
#include "support/cpu/float_mode.h"
#include "support/error.h"
#include "support/memory/heap.h"
#include "support/settings/settings.h"

namespace poptorch::run {

void Engine::start_run(const std::vector<void*>& host, int threads,
                       const std::function<void()>& poll) {
  host_.tensors = host.data();
  for (size_t i = 0; i < host.size(); ++i) {
    if (host_.slices[i].mode != OutputMode::sum) continue;
    const ir::Type& type = program_.streams[i].type;
    host_.sums[i].resize(
        static_cast<size_t>(replicas() * type.numel() * bytes_of_sum(type.dtype)));
  }
  threads_ = std::clamp(threads, 1, program_.threads);
  active_ = std::min(options_.workers, threads_);
  // A worker's calls cut sums as those of a run in turn, which may use all threads.
  program_.settings.library_threads = active_ > 1 ? threads_ : 0;
  context_.threads = threads_;
  context_.iteration = 0;
  context_.poll.start(poll);
}

void Engine::set_deadline(const Deadline* deadline) {
  for (int worker = 0; worker < options_.workers; ++worker) context(worker).deadline = deadline;
}

// What is done once, or after states were written.
void Engine::prepare() {
  if (is_stale_ && program_.preprocess >= 0) {
    run_joint(program_.blocks[static_cast<size_t>(program_.preprocess)], 0);
    give_back_freed_memory();  // it is used once
  }
  is_stale_ = false;
}

void Engine::run(const std::vector<void*>& host, int threads, const std::function<void()>& poll,
                 Deadline& deadline) {
  USER_CHECK(host.size() == program_.streams.size(), "[run] ", host.size(),
             " host tensors were given, the program has ", program_.streams.size(), " streams.");
  USER_CHECK(has_memory(), "[run] the program's memory was released. Call restore() first.");
  const int64_t begin = now_ns();
  populate();
  start_run(host, threads, poll);
  const SettingsScope scope(&program_.settings);
  const ProgramMode mode(is_flushing_);
  set_deadline(nullptr);
  prepare();
  deadline.exclude(now_ns() - begin);
  set_deadline(&deadline);
  if (context_.watch != nullptr) watch_states();
  const bool is_single = program_.device_loop < 0;
  if (is_single) timestamps_[0][0] = now_ns();
  run_joint(program_.blocks[0], 0);
  if (is_single) timestamps_[0][1] = now_ns();
  deadline.check();
}

bool Engine::needs_all_replicas(const Instruction& instruction) const {
  switch (instruction.kind) {
    case Instruction::Kind::collective: return true;
    case Instruction::Kind::loop:
      return instruction.index == program_.device_loop ||
             program_.blocks[static_cast<size_t>(instruction.index)].is_joint;
    default: return false;
  }
}

void Engine::run_joint(const Block& block, int64_t inner) {
  const size_t count = block.instructions.size();
  for (size_t begin = 0; begin < count;) {
    size_t end = begin;
    while (end < count && !needs_all_replicas(block.instructions[end])) ++end;
    if (end > begin) run_replicas(block, begin, end, inner);
    if (end == count) return;
    const Instruction& joint = block.instructions[end];
    if (joint.kind == Instruction::Kind::loop) {
      run_joint_loop(joint, inner);
    } else {
      collect(joint);
    }
    begin = end + 1;
  }
}

void Engine::run_joint_loop(const Instruction& loop, int64_t inner) {
  const Block& body = program_.blocks[static_cast<size_t>(loop.index)];
  const bool is_device_loop = loop.index == program_.device_loop;
  if (has_rounds() && side_loop_->block == loop.index) {
    return run_side({loop, 0, replicas(), inner});
  }
  context_.enter_loop(loop.index);
  for (int64_t i = 0; i < loop.count; ++i) {
    context_.next_iteration(i);
    if (!is_device_loop) {
      run_joint(body, inner * loop.count + i);
      continue;
    }
    context_.iteration = i;
    timestamps_[static_cast<size_t>(i)][0] = now_ns();
    run_joint(body, 0);
    timestamps_[static_cast<size_t>(i)][1] = now_ns();
  }
  context_.leave_loop();
}

void Engine::set_profiling(bool is_on) {
  for (int worker = 0; worker < options_.workers; ++worker) {
    RunContext& own = context(worker);
    own.is_profiling = is_on;
    if (is_on) own.spent.assign(program_.sources.size(), {});
  }
}

void Engine::set_delay(int64_t most_us, int seed) {
  for (int worker = 0; worker < options_.workers; ++worker) {
    context(worker).delay.set(most_us, seed + worker);
  }
}

std::vector<Spent> Engine::spent() const {
  std::vector<Spent> all = context_.spent;
  for (const auto& other : contexts_) {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].runs += other->spent[i].runs;
      all[i].ns += other->spent[i].ns;
    }
  }
  return all;
}

void Engine::watch_states() {
  context_.watch->begin_run();
  for (const assemble::State& state : program_.states) {
    for (int r = 0; r < replicas(); ++r) {
      context_.watch->look_at_state(state, state_data(state, r), r, context_.threads);
    }
  }
}

}  // namespace poptorch::run
