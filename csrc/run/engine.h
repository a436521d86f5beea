// Runs a program: one arena for each replica, host streams, loops. After the first run, which
// starts the workers of a form (run/host/host_form.h), a run makes no allocation. Not thread-safe:
// one run at a time. Between runs the arenas can be given back. What changes while a program runs
// is in RunContext.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "assemble/program.h"
#include "run/elements.h"
#include "run/host/gate.h"
#include "run/host/host_form.h"
#include "run/host/rounds.h"
#include "run/host/side_loop.h"
#include "run/host/stage_loop.h"
#include "run/host/stage_progress.h"
#include "run/host/workers.h"
#include "run/memory/shared_pages.h"
#include "run/run_context.h"

namespace poptorch::run {

struct EngineOptions {
  int replicas = 1;
  bool poison = false;  // the arenas start filled with NaN
  bool records_floats = false;  // a program with checks notes the first finding: it is no error
  int input_group_size = 1;  // replicas that read the same slices of the inputs, see SliceMap
  bool is_input_group_orthogonal = false;
  HostForm form = HostForm::in_turn;
  int workers = 1;  // the most that run side by side
  int lanes = 1;    // rounds of a loop that do, with memory of their own
  std::optional<StageLoop> stages = std::nullopt;  // of forms that run tasks
};

class Engine {
 public:
  Engine(assemble::Program program, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const assemble::Program& program() const { return program_; }
  int replicas() const { return options_.replicas; }
  std::byte* arena(int replica) { return memories_[static_cast<size_t>(replica)].arena.data(); }
  const std::byte* arena(int replica) const {
    return memories_[static_cast<size_t>(replica)].arena.data();
  }
  SliceMap& slices(size_t stream) { return host_.slices[stream]; }
  const SliceMap& slices(size_t stream) const { return host_.slices[stream]; }

  // `host[i]` is the host tensor of streams()[i]. A UserError of a kernel (a bad index, say) gets
  // the user's source appended; the engine can run again after it. Between iterations of its loops
  // a run calls `poll` now and then, which may throw: the engine can run again after that, too.
  // Between instructions it checks the deadline, where the time of what only the first run does
  // does not count.
  void run(const std::vector<void*>& host, int threads, const std::function<void()>& poll,
           Deadline& deadline);
  const Times& timestamps() const { return timestamps_; }

  // Gives the arenas back; no run until `restore`. States can still be read and written: they are
  // kept in memory of their own, but for those in `elsewhere`, which have no value any more.
  using Paths = std::set<std::string, std::less<>>;
  void release(const Paths& elsewhere);
  // Makes arenas again, with what was kept; the other states hold zeros. When it fails, nothing has
  // changed.
  void restore();
  bool has_memory() const { return !memories_.empty(); }
  bool has_state(const assemble::State& state) const {
    return has_memory() || kept_.count(state.path) > 0;
  }
  // Whether all replicas have the same bytes of a state in their memory.
  bool is_same_in_replicas(const assemble::State& state) const;

  // For each stream and slice: when a step requested it, and when it was there, in the last run. A
  // stream that is used where the host has it is there at once. Empty for `repeat` streams.
  const std::vector<Times>& stream_times() const { return host_.times; }
  // The bytes of a state in one replica; null: it has none, see `release`.
  const std::byte* state_data(const assemble::State& state, int replica) const;
  // The bytes of a state in a replica's own memory, to be overwritten.
  std::byte* own_state(const assemble::State& state, int replica);
  // From now on all replicas read a state in these pages; false: it lies there already.
  bool share_state(const assemble::State& state, std::shared_ptr<const SharedPages> pages);

  // The host has written a state: what is preprocessed from it is computed before the next run.
  void state_written(const assemble::State& state) { is_stale_ |= state.is_preprocess_input; }

  // Counts runs and time of each of program().sources (loops apart) from now on, from zero; `false`
  // stops it.
  void set_profiling(bool is_on);
  std::vector<Spent> spent() const;

  // Each worker waits a random time, at most so long, before it runs a part: for tests.
  void set_delay(int64_t most_us, int seed);

  // Whether runs record which value first is not finite; and that of the last run.
  bool is_recording_floats() const {
    return context_.watch != nullptr && context_.watch->is_recording();
  }
  const std::optional<NonFinite>& first_non_finite() const { return context_.watch->first(); }

 private:
  using Block = assemble::Block;
  using Instruction = assemble::Instruction;

  void check_replicas() const;
  void allocate();
  Arena make_arena() const;
  // Gives the memory that a run touches its pages, before the first run: a program that is compiled
  // to be saved needs none.
  void populate();
  Memory make_lane(const Memory& first) const;
  void point_state(const assemble::State& state, int replica, std::byte* at);
  // Of a replica, and of one of its rounds that run at the same time.
  Memory& memory(int replica, int lane);
  RunContext& context(int worker) {
    return worker == 0 ? context_ : *contexts_[static_cast<size_t>(worker) - 1];
  }
  void add_workers();
  void start_run(const std::vector<void*>& host, int threads, const std::function<void()>& poll);
  void prepare();
  void set_deadline(const Deadline* deadline);

  // All replicas together.
  void run_joint(const Block& block, int64_t inner);
  void run_joint_loop(const Instruction& loop, int64_t inner);
  void collect(const Instruction& instruction);
  void all_reduce(const Instruction& instruction, size_t tensor);
  void reduce_scatter(const Instruction& instruction);
  void all_gather(const Instruction& instruction);
  void reduce_inputs(const Reduction& what);
  bool needs_all_replicas(const Instruction& instruction) const;

  // Instructions [begin, end) of a block in each replica.
  void run_replicas(const Block& block, size_t begin, size_t end, int64_t inner);
  void run_replica(const Block& block, size_t begin, size_t end, int replica, int64_t inner);
  // A side loop in replicas [first, end), on all workers.
  struct Side {
    const Instruction& loop;
    int first, end;
    int64_t inner;
  };
  void run_side(const Side& side);
  bool run_round(const Side& side, int64_t i, int worker);
  void set_rng(const Side& side, int64_t i, int lane);
  // The same where rounds have tasks.
  struct Turn {
    const Side& side;
    size_t task;
    int64_t i;
    int replica;
  };
  void run_stages(const Side& side, int worker);
  std::optional<size_t> awaited(const Turn& turn) const;
  size_t lane_of(int replica, int64_t i) const;
  void run_task(const Turn& turn, int worker);
  void run_task_now(const Turn& turn, RunContext& own);
  // Calls fn(worker) on the workers of the run, which stop at the gate and note failures.
  void run_workers(WorkerFunction fn);
  bool is_side(HostForm form) const { return options_.form == form && active_ > 1; }
  // Whether rounds of the side loop run at the same time.
  bool has_rounds() const { return options_.stages || is_side(HostForm::micro); }

  void watch_states();
  void watch_reduction(const Instruction& instruction);
  void* const* pointers(const Instruction& instruction, int replica) const;

  assemble::Program program_;
  EngineOptions options_;
  std::vector<Memory> memories_;  // one for each replica; empty: released
  bool is_populated_ = false;     // whether they have their pages
  std::vector<Memory> lanes_;     // of rounds after that in the first memory, replica by replica
  // By path, while the arenas are released: the bytes of a state in each replica, or those that all
  // of them have.
  std::map<std::string, std::vector<std::vector<std::byte>>, std::less<>> kept_;
  // By path: states that are read in shared pages, and the pages.
  std::map<std::string, std::shared_ptr<const SharedPages>, std::less<>> shared_;
  HostSide host_;
  RunContext context_;  // of worker 0, which is the thread that calls
  std::vector<std::unique_ptr<RunContext>> contexts_;  // of the others
  std::unique_ptr<Workers> workers_;                   // null: none
  Gate gate_;
  Rounds rounds_;
  StageProgress progress_;
  std::optional<SideLoop> side_loop_;
  std::vector<std::array<int32_t, 4>> rng_;  // of each replica, when a side loop begins
  int threads_ = 1;                          // of the present run
  int active_ = 1;                           // workers of it
  Times timestamps_;
  bool is_flushing_ = true;
  bool is_stale_ = true;  // the block `preprocess` must run
  std::vector<const void*> reduce_inputs_;
  std::vector<void*> reduce_outputs_;
};

}  // namespace poptorch::run
