// What an engine runs side by side: replicas, and the rounds of a loop.
#include <cstring>

#include "run/clock.h"
#include "run/engine.h"

namespace poptorch::run {

void Engine::run_workers(WorkerFunction fn) {
  gate_.start(active_);
  rounds_.start();
  for (int worker = 0; worker < active_; ++worker) {
    RunContext& own = context(worker);
    own.threads = threads_ / active_;
    own.iteration = context_.iteration;
    own.gate = &gate_;
  }
  workers_->run([&](int worker) {
    if (worker >= active_) return;
    fn(worker);
    gate_.leave();
  });
  context_.threads = threads_;
  context_.gate = nullptr;
  rounds_.rethrow();
}

void Engine::run_replicas(const Block& block, size_t begin, size_t end, int64_t inner) {
  if (!is_side(HostForm::replicas)) {
    for (int r = 0; r < replicas(); ++r) run_replica(block, begin, end, r, inner);
    return;
  }
  const auto work = [&](int worker) {
    RunContext& own = context(worker);
    for (int r = worker; r < replicas() && !rounds_.is_over(r); r += active_) {
      try {
        own.replica = r;
        own.memory = &memory(r, 0);
        own.run(block, begin, end, inner);
      } catch (...) {
        return rounds_.fail(worker, gate_.is_stopped() ? -1 : r);
      }
    }
  };
  run_workers(WorkerFunction(work));
}

void Engine::run_replica(const Block& block, size_t begin, size_t end, int replica,
                         int64_t inner) {
  const auto enter = [&] {
    context_.replica = replica;
    context_.memory = &memory(replica, 0);
  };
  enter();
  if (has_rounds()) {
    for (size_t i = begin; i < end; ++i) {
      const Instruction& loop = block.instructions[i];
      if (loop.kind != Instruction::Kind::loop || loop.index != side_loop_->block) continue;
      context_.run(block, begin, i, inner);
      run_side({loop, replica, replica + 1, inner});
      enter();
      begin = i + 1;
    }
  }
  context_.run(block, begin, end, inner);
}

void Engine::run_side(const Side& side) {
  const bool has_rng = program_.blocks[static_cast<size_t>(side.loop.index)].rng_addr >= 0;
  for (int r = side.first; has_rng && r < side.end; ++r) {
    auto& begun = rng_[static_cast<size_t>(r)];
    const int64_t addr = program_.blocks[static_cast<size_t>(side.loop.index)].rng_addr;
    std::memcpy(begun.data(), arena(r) + addr, sizeof(begun));
  }
  progress_.start();
  const auto work = [&](int worker) {
    if (options_.stages) return run_stages(side, worker);
    for (int64_t i = worker; i < side.loop.count; i += active_) {
      if (!run_round(side, i, worker)) return rounds_.complete(worker, Rounds::none);
    }
  };
  const auto finish = [&](int64_t rounds) {
    if (has_rng) set_rng(side, rounds, 0);
  };
  try {
    run_workers(WorkerFunction(work));
  } catch (...) {
    const int64_t failed = rounds_.first_failed();
    finish(std::max<int64_t>(failed, 0) / (side.end - side.first));
    throw;
  }
  finish(side.loop.count);
}

// False: a round failed that is not later.
bool Engine::run_round(const Side& side, int64_t i, int worker) {
  const Block& body = program_.blocks[static_cast<size_t>(side.loop.index)];
  const auto length = static_cast<int64_t>(body.instructions.size());
  const bool is_device_loop = side.loop.index == program_.device_loop;
  const int replicas_here = side.end - side.first, before = (worker + active_ - 1) % active_;
  const int64_t inner = is_device_loop ? 0 : side.inner * side.loop.count + i;
  RunContext& own = context(worker);
  if (is_device_loop) {
    own.iteration = i;
    timestamps_[static_cast<size_t>(i)][0] = now_ns();
  }
  for (int r = side.first; r < side.end; ++r) {
    const int64_t round = i * replicas_here + r - side.first;
    if (rounds_.is_over(round)) return false;
    try {
      own.next_iteration(i);
      own.replica = r;
      own.memory = &memory(r, worker);
      if (body.rng_addr >= 0) set_rng({side.loop, r, r + 1, 0}, i, worker);
      for (const SideLoop::Segment& segment : side_loop_->segments) {
        const auto after = static_cast<int64_t>(segment.after);
        const int64_t wanted = (round - replicas_here) * length + after;
        if (i > 0 && after > 0 && !rounds_.wait(before, wanted, round, gate_)) return false;
        own.run(body, segment.begin, segment.end, inner);
        if (segment.is_awaited) {
          rounds_.complete(worker, round * length + static_cast<int64_t>(segment.end));
        }
      }
    } catch (...) {
      rounds_.fail(worker, gate_.is_stopped() ? -1 : round);
      return false;
    }
  }
  if (is_device_loop) timestamps_[static_cast<size_t>(i)][1] = now_ns();
  return true;
}

// The random state of replicas as a run in turn has it before round i.
void Engine::set_rng(const Side& side, int64_t i, int lane) {
  const int64_t addr = program_.blocks[static_cast<size_t>(side.loop.index)].rng_addr;
  for (int r = side.first; r < side.end; ++r) {
    auto state = rng_[static_cast<size_t>(r)];
    state[3] = static_cast<int32_t>(static_cast<uint32_t>(state[3]) + static_cast<uint32_t>(i));
    std::memcpy(memory(r, lane).arena.data() + addr, state.data(), sizeof(state));
  }
}

}  // namespace poptorch::run
