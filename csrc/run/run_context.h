// What changes while a program runs. A worker (a thread that runs instructions) has one RunContext;
// the engine keeps what is compiled, and the memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "assemble/program.h"
#include "run/deadline.h"
#include "run/floats/float_watch.h"
#include "run/host/gate.h"
#include "run/memory/arena.h"
#include "run/streams.h"
#include "support/error.h"

namespace poptorch::run {

constexpr int poison_byte = 0xff;  // every float of these bytes is NaN

// The memory of one replica, and Program::offsets as addresses in it.
struct Memory {
  Arena arena;
  std::vector<void*> pointers;
};

// Begin and end, in ns of CLOCK_MONOTONIC.
using Times = std::vector<std::array<int64_t, 2>>;

// The host's side of a program: one entry of each list for each stream. Workers write to it, each
// to the slices of its steps.
struct HostSide {
  std::vector<SliceMap> slices;
  std::vector<Times> times;                  // of slices, see Engine::stream_times
  std::vector<std::vector<std::byte>> sums;  // under OutputMode::sum, of each replica
  void* const* tensors = nullptr;            // during a run
};

// Calls a function now and then.
class Poll {
 public:
  void start(const std::function<void()>& fn);
  bool is_due() const;
  void call();

 private:
  const std::function<void()>* fn_ = nullptr;  // null: none
  int64_t next_ns_ = 0;
};

// Waits a random time, in tests of workers: whichever is late, results are the same.
class Delay {
 public:
  // At most so many microseconds from now on; 0: none.
  void set(int64_t most_us, int seed);
  bool is_on() const { return most_us_ > 0; }
  void wait();

 private:
  int64_t most_us_ = 0;
  std::minstd_rand random_;
};

// Runs and time of one of Program::sources.
struct Spent {
  int64_t runs = 0;
  int64_t ns = 0;
};

class RunContext {
 public:
  RunContext(const assemble::Program& program, HostSide& host) : program_(program), host_(host) {}
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  // Of the instructions that come next: the replica and its memory, the device iteration, the
  // threads that a kernel may use.
  int replica = 0;
  Memory* memory = nullptr;
  int64_t iteration = 0;
  int threads = 1;

  Poll poll;
  const Deadline* deadline = nullptr;  // null: none is checked
  Gate* gate = nullptr;  // null: no other worker runs
  std::unique_ptr<FloatWatch> watch;  // null: no checks
  Delay delay;
  bool is_profiling = false;
  std::vector<Spent> spent;  // empty: no profile

  // Instructions [begin, end) of a block. `inner`: the number of the step in the device iteration.
  // A UserError of a kernel gets the user's source appended.
  void run(const assemble::Block& block, size_t begin, size_t end, int64_t inner);

  // Throws the error with the user's source of the instruction.
  [[noreturn]] void throw_with_place(const UserError& error,
                                     const assemble::Instruction& instruction) const;

  // A loop of the program's begins, comes to an iteration, ends.
  void enter_loop(int block) {
    if (watch != nullptr) watch->enter_loop(block);
  }
  void next_iteration(int64_t i) {
    if (delay.is_on()) delay.wait();
    if (poll.is_due()) call_poll();
    if (gate != nullptr) gate->pass();
    if (watch != nullptr) watch->next(i);
  }
  void leave_loop() {
    if (watch != nullptr) watch->leave_loop();
  }

 private:
  using Instruction = assemble::Instruction;

  void call_poll();
  void run_one(const Instruction& instruction, int64_t inner);
  void run_timed(const Instruction& instruction, int64_t inner);
  void run_watched(const Instruction& instruction, int64_t inner);
  void run_loop(const Instruction& loop, const bool* holds, int64_t inner);
  void bind(const Instruction& instruction, const Step& step);
  void stream_in(const Instruction& instruction, void* to, const Step& step);
  void stream_out(const Instruction& instruction, const void* from, const Step& step);
  void sum(size_t stream, void* to, const void* from, const Step& step);
  void* const* pointers(const Instruction& instruction) const {
    return memory->pointers.data() + instruction.first_pointer;
  }

  const assemble::Program& program_;
  HostSide& host_;
};

}  // namespace poptorch::run
