#include "run/host/host_cost.h"

#include <algorithm>
#include <string_view>

#include "run/host/side_loop.h"

namespace poptorch::run {

namespace {

using assemble::Block;
using assemble::Instruction;

// Of a core of a server, in its caches.
constexpr double flops_of_ns = 30, bytes_of_ns = 20;
constexpr double least_ns = 100;      // of an instruction
constexpr double part_ns = 10'000;    // of an op, that is worth a thread
constexpr double region_ns = 3'000;   // to begin and end a part for each thread
constexpr double workers_ns = 30'000;  // to begin and end a part for each worker
constexpr double round_ns = 5'000;     // of a worker, to wait for others in a round

bool is_library(const assemble::Source& source) {
  return source.op.find("::") != std::string::npos ||
         source.algorithm.find("onednn") != std::string::npos;
}

struct Time {
  double alone = 0;     // on one thread
  double threaded = 0;  // on those that a kernel may use
  double library = 0;   // the part of `alone` that calls of libraries take

  void add(const Time& other, double times) {
    alone += times * other.alone;
    threaded += times * other.threaded;
    library += times * other.library;
  }
};

Time time_of(const assemble::Source& source, int threads) {
  const double bytes = source.work.bytes / bytes_of_ns;
  Time time;
  time.alone = std::max(source.work.flops.value_or(0) / flops_of_ns, bytes) + least_ns;
  const double parts = std::min<double>(threads, time.alone / part_ns);
  time.threaded = parts < 2 ? time.alone : time.alone / parts + region_ns;
  if (is_library(source)) time.library = time.alone;
  return time;
}

Time time_of(const assemble::Program& program, const Instruction& instruction, int threads) {
  if (instruction.kind != Instruction::Kind::loop) {
    return time_of(program.sources[static_cast<size_t>(instruction.source)], threads);
  }
  Time time;
  for (const Instruction& one :
       program.blocks[static_cast<size_t>(instruction.index)].instructions) {
    time.add(time_of(program, one, threads), static_cast<double>(instruction.count));
  }
  return time;
}

Time time_of(const assemble::Program& program, const Block& block, int threads) {
  Time time;
  for (const Instruction& one : block.instructions) time.add(time_of(program, one, threads), 1);
  return time;
}

// The longest that a round holds what the next one waits for.
double longest_hold(const assemble::Program& program, const Block& body, const SideLoop& loop,
                    int threads) {
  std::vector<double> begins = {0};
  for (const Instruction& one : body.instructions) {
    begins.push_back(begins.back() + time_of(program, one, threads).threaded);
  }
  double longest = 0;
  for (const SideLoop::Segment& segment : loop.segments) {
    if (segment.after > segment.begin) {
      longest = std::max(longest, begins[segment.after] - begins[segment.begin]);
    }
  }
  return longest;
}

double persistent_bytes(const assemble::Program& program) {
  double bytes = 0;
  for (const auto& extent : program.persistent) {
    bytes += static_cast<double>(extent.end - extent.begin);
  }
  return bytes;
}

HostCost cost_of_replicas(const assemble::Program& program, const HostOptions& options,
                          int workers) {
  const Block& block = program.blocks[static_cast<size_t>(std::max(program.device_loop, 0))];
  const Time in_turn = time_of(program, block, options.threads);
  const Time own = time_of(program, block, options.threads / workers);
  const double rounds = (options.replicas + workers - 1) / workers;
  return {options.replicas * in_turn.threaded, rounds * own.threaded + workers_ns,
          in_turn.library / in_turn.alone, 0};
}

HostCost cost_of_micro(const assemble::Program& program, const HostOptions& options, int workers) {
  const SideLoop loop = *find_side_loop(program);
  const Block& body = program.blocks[static_cast<size_t>(loop.block)];
  const auto count = static_cast<double>(rounds_of(program, loop.block));
  const int threads = options.threads / workers;
  const Time in_turn = time_of(program, body, options.threads);
  const double own = time_of(program, body, threads).threaded + round_ns;
  const double hold = longest_hold(program, body, loop, threads) + round_ns;
  const double rounds = std::max((count + workers - 1) / workers * own, (count - 1) * hold + own);
  return {count * in_turn.threaded, rounds + workers_ns, in_turn.library / in_turn.alone,
          bytes_of_lanes(program, options, workers)};
}

}  // namespace

double bytes_of_lanes(const assemble::Program& program, const HostOptions& options, int lanes) {
  const double lane = static_cast<double>(program.arena_bytes) - persistent_bytes(program);
  return options.replicas * (lanes - 1) * lane;
}

HostCost cost_of(const assemble::Program& program, HostForm form, const HostOptions& options,
                 int workers) {
  return form == HostForm::replicas ? cost_of_replicas(program, options, workers)
                                    : cost_of_micro(program, options, workers);
}

}  // namespace poptorch::run
