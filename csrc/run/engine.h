// Runs a program: one arena for each replica, host streams, loops. After construction a run makes
// no allocation. Not thread-safe: one run at a time. Between runs the arenas can be given back.
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
#include "run/arena.h"
#include "run/float_watch.h"
#include "run/shared_pages.h"
#include "run/streams.h"
#include "support/error.h"

namespace poptorch::run {

struct EngineOptions {
  int replicas = 1;
  bool poison = false;  // the arenas start filled with NaN
  bool records_floats = false;  // a program with checks notes the first finding: it is no error
  int input_group_size = 1;  // replicas that read the same slices of the inputs, see SliceMap
  bool is_input_group_orthogonal = false;
};

class Engine {
 public:
  Engine(assemble::Program program, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const assemble::Program& program() const { return program_; }
  int replicas() const { return options_.replicas; }
  std::byte* arena(int replica) { return arenas_[static_cast<size_t>(replica)].data(); }
  const std::byte* arena(int replica) const { return arenas_[static_cast<size_t>(replica)].data(); }
  SliceMap& slices(size_t stream) { return slices_[stream]; }
  const SliceMap& slices(size_t stream) const { return slices_[stream]; }

  // `host[i]` is the host tensor of streams()[i]. A UserError of a kernel (a bad index, say) gets
  // the user's source appended; the engine can run again after it. Between iterations of its loops
  // a run calls `poll` now and then, which may throw: the engine can run again after that, too.
  void run(const std::vector<void*>& host, int threads, const std::function<void()>& poll = {});
  const std::vector<std::array<int64_t, 2>>& timestamps() const { return timestamps_; }

  // Gives the arenas back; no run until `restore`. States can still be read and written: they are
  // kept in memory of their own, but for those in `elsewhere`, which have no value any more.
  using Paths = std::set<std::string, std::less<>>;
  void release(const Paths& elsewhere);
  // Makes arenas again, with what was kept; the other states hold zeros. When it fails, nothing has
  // changed.
  void restore();
  bool has_memory() const { return !arenas_.empty(); }
  bool has_state(const assemble::State& state) const {
    return has_memory() || kept_.count(state.path) > 0;
  }
  // Whether all replicas have the same bytes of a state.
  bool is_same_in_replicas(const assemble::State& state) const;

  // For each stream and slice: when a step requested it, and when it was there, in the last run. A
  // stream that is used where the host has it is there at once. Empty for `repeat` streams.
  const std::vector<std::vector<std::array<int64_t, 2>>>& stream_times() const {
    return stream_times_;
  }
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
  struct Spent {
    int64_t runs = 0;
    int64_t ns = 0;
  };
  const std::vector<Spent>& spent() const { return spent_; }

  // Whether runs record which value first is not finite; and that of the last run.
  bool is_recording_floats() const { return watch_ != nullptr && watch_->is_recording(); }
  const std::optional<NonFinite>& first_non_finite() const { return watch_->first(); }

 private:
  using Block = assemble::Block;
  using Instruction = assemble::Instruction;

  void allocate();
  Arena make_arena() const;
  // All replicas together.
  void run_joint(const Block& block, int64_t inner);
  void run_joint_loop(const Instruction& loop, int64_t inner);
  // One replica; instructions [begin, end) of a block.
  void run_range(const Block& block, size_t begin, size_t end, int replica, int64_t inner);
  void run_one(const Instruction& instruction, int replica, int64_t inner);
  void run_timed(const Instruction& instruction, int replica, int64_t inner);
  void run_watched(const Instruction& instruction, int replica, int64_t inner);
  void run_loop(const Instruction& loop, const bool* holds, int replica, int64_t inner);
  void watch_states();
  void watch_reduction(const Instruction& instruction);
  [[noreturn]] void throw_with_place(const UserError& error, const Instruction& instruction) const;
  void reduce(const Instruction& instruction);
  void bind(const Instruction& instruction, int replica, const Step& step);
  void stream_in(const Instruction& instruction, void* to, const Step& step);
  void stream_out(const Instruction& instruction, const void* from, const Step& step);
  void sum(size_t stream, void* to, const void* from, const Step& step);
  void point_state(const assemble::State& state, int replica, std::byte* at);
  void poll();
  void* const* pointers(const Instruction& instruction, int replica) const;
  bool needs_all_replicas(const Instruction& instruction) const;

  assemble::Program program_;
  EngineOptions options_;
  std::vector<Arena> arenas_;  // empty: released
  // By path, while the arenas are released: the bytes of a state in each replica, or those that all
  // of them have.
  std::map<std::string, std::vector<std::vector<std::byte>>, std::less<>> kept_;
  std::vector<std::vector<void*>> pointers_;  // Program::offsets in each arena
  // By path: states that are read in shared pages, and the pages.
  std::map<std::string, std::shared_ptr<const SharedPages>, std::less<>> shared_;
  std::vector<SliceMap> slices_;  // one for each stream
  std::vector<std::vector<std::byte>> sums_;  // likewise: under OutputMode::sum, of each replica
  std::vector<std::array<int64_t, 2>> timestamps_;
  std::vector<std::vector<std::array<int64_t, 2>>> stream_times_;
  std::vector<Spent> spent_;  // empty: no profile
  std::unique_ptr<FloatWatch> watch_;  // null: no checks
  bool is_profiling_ = false;
  bool is_flushing_ = true;
  bool is_stale_ = true;  // the block `preprocess` must run
  // During a run:
  void* const* host_ = nullptr;
  int threads_ = 1;
  int64_t iteration_ = 0;
  const std::function<void()>* poll_ = nullptr;
  int64_t next_poll_ns_ = 0;
  std::vector<const void*> reduce_inputs_;
  std::vector<void*> reduce_outputs_;
};

}  // namespace poptorch::run
