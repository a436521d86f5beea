// Planned memory for ATen calls. torch asks one process-wide allocator for memory; `install` puts
// ours in front of the one that is there. It changes nothing but while one of our own calls runs,
// on the thread that makes it:
//
//   dry run, when a kernel is prepared      Recorder r(memory);  call;  plan = place(r.finish());
//   each later run                          Replay r(plan, scratch, outputs);  call;  r.check();
//
// A Recorder records each allocation of the call, in order, and when it is freed. It follows which
// allocation becomes which result and where in scratch the others go. A Replay hands out exactly
// those addresses. Whatever does not match the recording (another order or size, another thread) is
// served by the allocator that was there before: correct, and seen in `original_allocations`. All
// other memory of the process stays where torch always puts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/loading/shown.h"
#include "support/memory/work_memory.h"

namespace poptorch::aten {

// One allocation of a recorded call. Served from results[result], else from scratch + offset.
struct Allocation {
  size_t bytes = 0;
  size_t offset = 0;
  int result = -1;
  bool escapes = false;  // outlives the call (a cache inside torch): never planned memory
};

struct AllocationPlan {
  std::vector<Allocation> allocations;  // in the order of the calls
  size_t scratch_bytes = 0;
};

// What a call did: its allocations in their order. Times count allocations and frees.
struct Recorded {
  size_t bytes;
  int64_t begin, end;  // end -1: it outlives the call
  int result;          // -1: none
};
using Recording = std::vector<Recorded>;

AllocationPlan place(const Recording& recording);

// The call for a batch of `count`, from those of `few` and of `more` entries: what differs between
// these two grows by as much with each entry. nullopt when they differ in more than bytes.
std::optional<Recording> extrapolate(const Recording& of_few, int64_t few,
                                     const Recording& of_more, int64_t more, int64_t count);

// Puts our allocator in front of torch's, at the first call; cheap afterwards. False when torch's
// has no plain deleter: then calls run without planned memory.
bool install();

// How often the allocator that was there before was called since `install`, on any thread of the
// process.
POPTORCH_SHOWN int64_t original_allocations();

// What an allocator scope of this thread does; the current one is thread_local.
class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  // The address for the next allocation, nullptr: from the original allocator.
  virtual void* allocate(size_t bytes) = 0;
  // Whether the memory belonged to this scope and needs nothing more.
  virtual bool release(void* memory) = 0;

  // For frees on other threads, called under the registry's lock: whether the memory is this
  // scope's.
  bool release_elsewhere(void* memory);

 protected:
  Scope();
  ~Scope();
  // As `release_elsewhere`, which only notes what is freed.
  virtual bool owns(const void* memory) const = 0;
  // Called under the registry's lock, on the scope's own thread.
  void forget_released_elsewhere();

 private:
  Scope* outer_;
  std::vector<void*> released_elsewhere_;
};

class Recorder final : public Scope {
 public:
  // Large allocations lie in `memory` while the call runs.
  explicit Recorder(WorkMemory& memory);
  ~Recorder();
  void* allocate(size_t bytes) override;
  bool release(void* memory) override;
  // The live allocation at this address becomes result `index`. False, and ignored, for other
  // addresses and for one that is a result already.
  bool set_result(const void* memory, int index);
  // Call it when all tensors of the call are gone.
  Recording finish();

 private:
  struct Entry {
    void* memory;
    size_t bytes;
    int64_t begin;
    int64_t end;  // -1: live
    int result;
    bool is_ours;  // lies in memory_; else the original allocator's
  };
  bool owns(const void* memory) const override;
  void end(Entry& entry);

  WorkMemory& memory_;
  std::vector<Entry> entries_;
  int64_t time_ = 0;
};

class Replay final : public Scope {
 public:
  Replay(const AllocationPlan& plan, void* scratch, void* const* outputs);
  ~Replay();
  void* allocate(size_t bytes) override;
  bool release(void* memory) override;
  // Call it when all tensors of the call are gone. An internal error naming `what` when memory was
  // kept.
  void check(const std::string& what);

 private:
  struct Live {
    void* memory;
    const Allocation* allocation;
  };
  bool owns(const void* memory) const override;
  void* address_of(const Allocation& allocation) const;
  bool is_free(const Allocation& wanted) const;

  const AllocationPlan& plan_;
  std::byte* scratch_;
  void* const* outputs_;
  std::vector<Live> live_;
  size_t next_ = 0;
  bool in_step_ = true;
};

}  // namespace poptorch::aten
