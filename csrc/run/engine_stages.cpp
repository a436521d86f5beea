// What an engine runs of a stage loop: tasks of several rounds at the same time.
#include "run/clock.h"
#include "run/engine.h"

namespace poptorch::run {

// Tasks of the IPUs of a worker, in the order of the loop.
void Engine::run_stages(const Side& side, int worker) {
  const StageLoop& stages = *options_.stages;
  const int64_t last = side.loop.count + stages.tasks.back().offset;
  for (int64_t turn = 0; turn < last; ++turn) {
    for (const size_t task : stages.order) {
      const StageLoop::Task& what = stages.tasks[task];
      const int64_t i = turn - what.offset;
      if (what.worker % static_cast<size_t>(active_) != static_cast<size_t>(worker)) continue;
      if (i < 0 || i >= side.loop.count) continue;
      for (int r = side.first; r < side.end; ++r) run_task({side, task, i, r}, worker);
    }
  }
}

// The lane, of all replicas, that a task waits for; none: it may begin.
std::optional<size_t> Engine::awaited(const Turn& turn) const {
  const StageLoop& stages = *options_.stages;
  const auto missing = [&](int64_t i, int64_t position) -> std::optional<size_t> {
    const size_t lane = lane_of(turn.replica, i);
    const int64_t before = i / options_.lanes * stages.length();  // steps of rounds in the lane
    if (progress_.position(lane) >= before + position) return std::nullopt;
    return lane;
  };
  if (const auto lane = missing(turn.i, StageLoop::begin_of(turn.task) - 1)) return lane;
  for (const StageLoop::Wait& wait : stages.tasks[turn.task].waits) {
    if (turn.i < wait.back) continue;
    if (const auto lane = missing(turn.i - wait.back, wait.position)) return lane;
  }
  return std::nullopt;
}

size_t Engine::lane_of(int replica, int64_t i) const {
  return static_cast<size_t>(replica * options_.lanes + i % options_.lanes);
}

// A round that fails ends itself and later ones.
void Engine::run_task(const Turn& turn, int worker) {
  const Side& side = turn.side;
  const int64_t round = turn.i * (side.end - side.first) + turn.replica - side.first;
  const auto is_over = [&] { return rounds_.is_over(round + 1); };
  try {
    progress_.wait(gate_, [&] { return is_over() ? std::nullopt : awaited(turn); });
    if (is_over()) return;
    context(worker).next_iteration(turn.i);
    progress_.step(lane_of(turn.replica, turn.i));
    run_task_now(turn, context(worker));
    progress_.step(lane_of(turn.replica, turn.i));
  } catch (...) {
    rounds_.fail(worker, gate_.is_stopped() ? -1 : round);
    progress_.wake();
  }
}

void Engine::run_task_now(const Turn& turn, RunContext& own) {
  const Side& side = turn.side;
  const std::vector<StageLoop::Task>& tasks = options_.stages->tasks;
  const Block& body = program_.blocks[static_cast<size_t>(side.loop.index)];
  const bool is_device_loop = side.loop.index == program_.device_loop;
  const int lane = static_cast<int>(turn.i % options_.lanes);
  if (is_device_loop) own.iteration = turn.i;
  if (is_device_loop && turn.task == 0 && turn.replica == side.first) {
    timestamps_[static_cast<size_t>(turn.i)][0] = now_ns();
  }
  if (body.rng_addr >= 0 && turn.task == 0) {
    set_rng({side.loop, turn.replica, turn.replica + 1, 0}, turn.i, lane);
  }
  own.replica = turn.replica;
  own.memory = &memory(turn.replica, lane);
  own.run(body, tasks[turn.task].begin, tasks[turn.task].end,
          is_device_loop ? 0 : side.inner * side.loop.count + turn.i);
  if (is_device_loop && turn.task + 1 == tasks.size() && turn.replica + 1 == side.end) {
    timestamps_[static_cast<size_t>(turn.i)][1] = now_ns();
  }
}

}  // namespace poptorch::run
