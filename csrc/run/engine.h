// Runs a program: one arena for each replica, host streams, loops. After construction a run makes
// no allocation. Not thread-safe: one run at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "assemble/program.h"
#include "run/arena.h"
#include "run/streams.h"

namespace poptorch::run {

struct EngineOptions {
  int replicas = 1;
  bool poison = false;  // the arenas start filled with NaN
};

class Engine {
 public:
  Engine(assemble::Program program, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const assemble::Program& program() const { return program_; }
  int replicas() const { return static_cast<int>(arenas_.size()); }
  std::byte* arena(int replica) { return arenas_[static_cast<size_t>(replica)].data(); }
  const std::byte* arena(int replica) const { return arenas_[static_cast<size_t>(replica)].data(); }
  SliceMap& slices(size_t stream) { return slices_[stream]; }
  const SliceMap& slices(size_t stream) const { return slices_[stream]; }

  // `host[i]` is the host tensor of streams()[i]. A UserError of a kernel (a bad index, say) gets
  // the user's source appended; the engine can run again after it.
  void run(const std::vector<void*>& host, int threads);
  const std::vector<std::array<int64_t, 2>>& timestamps() const { return timestamps_; }

 private:
  using Block = assemble::Block;
  using Instruction = assemble::Instruction;

  // All replicas together.
  void run_joint(const Block& block, int64_t inner);
  void run_joint_loop(const Instruction& loop, int64_t inner);
  // One replica; instructions [begin, end) of a block.
  void run_range(const Block& block, size_t begin, size_t end, int replica, int64_t inner);
  void run_one(const Instruction& instruction, int replica, int64_t inner);
  void reduce(const Instruction& instruction);
  void stream_in(const Instruction& instruction, void* to, const Step& step);
  void stream_out(const Instruction& instruction, const void* from, const Step& step);
  void* const* pointers(const Instruction& instruction, int replica) const;
  bool needs_all_replicas(const Instruction& instruction) const;

  assemble::Program program_;
  std::vector<Arena> arenas_;
  std::vector<std::vector<void*>> pointers_;  // Program::offsets in each arena
  std::vector<SliceMap> slices_;              // one for each stream
  std::vector<std::array<int64_t, 2>> timestamps_;
  // During a run:
  void* const* host_ = nullptr;
  int threads_ = 1;
  int64_t iteration_ = 0;
  std::vector<const void*> reduce_inputs_;
  std::vector<void*> reduce_outputs_;
};

}  // namespace poptorch::run
