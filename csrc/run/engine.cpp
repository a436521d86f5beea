#include "run/engine.h"

#include <cstring>

#include "run/memory/memory_limit.h"
#include "support/ceil_div.h"
#include "support/error.h"

namespace poptorch::run {

Engine::Engine(assemble::Program program, const EngineOptions& options)
    : program_(std::move(program)),
      options_(options),
      context_(program_, host_),
      rounds_(options.workers),
      progress_(static_cast<size_t>(options.lanes * options.replicas)) {
  INTERNAL_CHECK(options.replicas >= 1, options.replicas, " replicas");
  add_workers();
  allocate();
  for (const assemble::Stream& stream : program_.streams) {
    SliceMap& map = host_.slices.emplace_back();
    map.iterations = program_.device_iterations;
    map.groups.replicas = options.replicas;
    map.per_iteration = stream.per_iteration;
    map.repeat = stream.repeat;
    if (stream.is_input) {
      map.groups.size = options.input_group_size;
      map.groups.is_orthogonal = options.is_input_group_orthogonal;
    }
    host_.times.emplace_back(stream.repeat ? 0 : map.host_slices());
    host_.sums.emplace_back();
  }
  is_flushing_ = program_.settings.is_on("flush_denormals");
  if (!program_.checks.empty()) {
    context_.watch =
        std::make_unique<FloatWatch>(program_, options.records_floats, options.replicas);
  }
  timestamps_.resize(static_cast<size_t>(program_.device_iterations));
  reduce_inputs_.reserve(memories_.size());
  reduce_outputs_.reserve(memories_.size());
  check_replicas();
}

// What is written in the program of the number of replicas.
void Engine::check_replicas() const {
  using Kind = assemble::Collective::Kind;
  for (const assemble::Collective& what : program_.collectives) {
    const int64_t size = what.group_size;
    USER_CHECK(size == 0 || (size > 0 && replicas() % size == 0),
               "[run] an all_reduce works in groups of ", size, " replicas, there are ",
               replicas(), ". Give a divisor of their number.");
    USER_CHECK(what.kind == Kind::all_reduce || what.shards == replicas(),
               "[run] an op cuts a tensor into ", what.shards, " parts, there are ", replicas(),
               " replicas. Give each replica one part.");
  }
  for (const assemble::State& state : program_.states) {
    const int64_t part = ceil_div(state.type.numel(), replicas());
    USER_CHECK(state.shard == 0 || state.shard == part, "[run] replicas have ", state.shard,
               " elements of the state \"", state.path, "\", which is ", state.type.text(),
               "; each of ", replicas(), " replicas needs ", part, ". Change its type.");
  }
}

Arena Engine::make_arena() const {
  Arena arena(program_.arena_bytes);
  for (const assemble::Extent& extent : program_.scratch) {
    arena.use_small_pages(extent.begin, extent.end);
  }
  std::byte* base = arena.data();
  if (options_.poison) {
    std::memset(base, poison_byte, static_cast<size_t>(program_.arena_bytes));
  }
  for (const assemble::Constant& constant : program_.constants) {
    std::memcpy(base + constant.addr, constant.bytes.data(), constant.bytes.size());
  }
  return arena;
}

void Engine::populate() {
  if (is_populated_) return;
  for (Memory& memory : memories_) {
    for (const assemble::Extent& extent : program_.resident) {
      memory.arena.populate(extent.begin, extent.end);
    }
  }
  is_populated_ = true;
}

void Engine::add_workers() {
  if (options_.form == HostForm::in_turn) return;
  workers_ = std::make_unique<Workers>(options_.workers);
  for (int worker = 1; worker < options_.workers; ++worker) {
    contexts_.push_back(std::make_unique<RunContext>(program_, host_));
  }
  if (options_.lanes > 1 || options_.stages) side_loop_ = find_side_loop(program_);
  rng_.resize(static_cast<size_t>(replicas()));
}

// What rounds share lies in the replica's first memory. The rest is touched where it is used.
Memory Engine::make_lane(const Memory& first) const {
  Memory lane{Arena(program_.arena_bytes), first.pointers};
  for (const assemble::Extent& extent : program_.scratch) {
    lane.arena.use_small_pages(extent.begin, extent.end);
  }
  if (options_.poison) {
    std::memset(lane.arena.data(), poison_byte, static_cast<size_t>(program_.arena_bytes));
  }
  for (size_t i = 0; i < lane.pointers.size(); ++i) {
    const int64_t offset = program_.offsets[i];
    if (offset < 0 || extent_at(side_loop_->shared, offset) != nullptr) continue;
    lane.pointers[i] = lane.arena.data() + offset;
  }
  return lane;
}

Memory& Engine::memory(int replica, int lane) {
  if (lane == 0) return memories_[static_cast<size_t>(replica)];
  return lanes_[static_cast<size_t>(replica * (options_.lanes - 1) + lane - 1)];
}

void Engine::allocate() {
  // Pages beyond the limit would end the process when they are populated.
  const int64_t limit = memory_limit();
  USER_CHECK(program_.arena_bytes <= limit / replicas(), "[run] the memory of ", replicas(),
             " replicas needs ", program_.arena_bytes, " bytes for each, this process may have ",
             limit, " bytes in all. Try a smaller batch or fewer replicas.");
  std::vector<Memory> memories, lanes;
  for (int r = 0; r < replicas(); ++r) {
    Memory& memory = memories.emplace_back(Memory{make_arena(), {}});
    memory.pointers.reserve(program_.offsets.size());
    for (const int64_t offset : program_.offsets) {
      memory.pointers.push_back(offset < 0 ? nullptr : memory.arena.data() + offset);
    }
  }
  for (const Memory& first : memories) {
    for (int lane = 1; lane < options_.lanes; ++lane) {
      lanes.push_back(make_lane(first));
    }
  }
  memories_ = std::move(memories);
  lanes_ = std::move(lanes);
  is_populated_ = false;
}

bool Engine::is_same_in_replicas(const assemble::State& state) const {
  const std::byte* first = state_data(state, 0);
  for (int r = 1; r < replicas(); ++r) {
    const std::byte* other = state_data(state, r);
    const bool is_same =
        other == first ||
        std::memcmp(first, other, static_cast<size_t>(state.own_bytes())) == 0;
    if (!is_same) return false;
  }
  return true;
}

void Engine::release(const Paths& elsewhere) {
  if (!has_memory()) return;
  for (const assemble::State& state : program_.states) {
    if (elsewhere.count(state.path) > 0) continue;
    std::vector<std::vector<std::byte>>& copies = kept_[state.path];
    for (int r = 0; r < (is_same_in_replicas(state) ? 1 : replicas()); ++r) {
      const std::byte* at = state_data(state, r);
      copies.emplace_back(at, at + state.own_bytes());
    }
  }
  shared_.clear();
  memories_.clear();
  lanes_.clear();
}

void Engine::restore() {
  if (has_memory()) return;
  allocate();
  for (const assemble::State& state : program_.states) {
    const auto bytes = static_cast<size_t>(state.own_bytes());
    for (int r = 0; r < replicas(); ++r) {
      std::byte* to = arena(r) + state.addr;
      const auto found = kept_.find(state.path);
      if (found == kept_.end()) {
        std::memset(to, 0, bytes);
      } else {
        const size_t copy = found->second.size() == 1 ? 0 : static_cast<size_t>(r);
        std::memcpy(to, found->second[copy].data(), bytes);
      }
    }
  }
  kept_.clear();
  is_stale_ = true;
}

const std::byte* Engine::state_data(const assemble::State& state, int replica) const {
  if (!has_memory()) {
    const auto found = kept_.find(state.path);
    if (found == kept_.end()) return nullptr;
    return found->second[found->second.size() == 1 ? 0 : static_cast<size_t>(replica)].data();
  }
  const auto found = shared_.find(state.path);
  return found == shared_.end() ? arena(replica) + state.addr : found->second->data();
}

std::byte* Engine::own_state(const assemble::State& state, int replica) {
  if (!has_memory()) {
    std::vector<std::vector<std::byte>>& copies = kept_[state.path];
    if (copies.empty()) copies.emplace_back(static_cast<size_t>(state.own_bytes()));
    const std::vector<std::byte> first = copies.front();
    copies.resize(static_cast<size_t>(replicas()), first);
    return copies[static_cast<size_t>(replica)].data();
  }
  if (const auto found = shared_.find(state.path); found != shared_.end()) {
    for (int r = 0; r < replicas(); ++r) {
      std::byte* at = arena(r) + state.addr;
      std::memcpy(at, found->second->data(), static_cast<size_t>(state.own_bytes()));
      point_state(state, r, at);
    }
    shared_.erase(found);
  }
  return arena(replica) + state.addr;
}

bool Engine::share_state(const assemble::State& state, std::shared_ptr<const SharedPages> pages) {
  INTERNAL_CHECK(has_memory(), "state ", state.path, " is shared without memory");
  std::shared_ptr<const SharedPages>& present = shared_[state.path];
  if (present == pages) return false;
  present = std::move(pages);
  for (int r = 0; r < replicas(); ++r) {
    // Kernels take all pointers as writable, but no plan writes to a state that is not assigned.
    point_state(state, r, const_cast<std::byte*>(present->data()));
    memories_[static_cast<size_t>(r)].arena.release(state.addr, state.addr + state.own_bytes());
  }
  return true;
}

// Views of a state point into it, too.
void Engine::point_state(const assemble::State& state, int replica, std::byte* at) {
  for (int lane = 0; lane < options_.lanes; ++lane) {
    std::vector<void*>& pointers = memory(replica, lane).pointers;
    for (size_t i = 0; i < pointers.size(); ++i) {
      const int64_t offset = program_.offsets[i] - state.addr;
      if (offset >= 0 && offset < state.own_bytes()) pointers[i] = at + offset;
    }
  }
}

}  // namespace poptorch::run
