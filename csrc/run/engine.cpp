#include "run/engine.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

#include "run/elements.h"
#include "run/memory_limit.h"
#include "support/error.h"
#include "support/float_mode.h"
#include "support/heap.h"
#include "support/parallel.h"
#include "support/settings.h"

namespace poptorch::run {

namespace {

constexpr int poison_byte = 0xff;  // every float of these bytes is NaN
constexpr int64_t poll_interval_ns = 20'000'000;  // no user waits for less

int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void copy_bytes(void* to, const void* from, int64_t bytes, int threads) {
  parallel_for(threads, bytes, int64_t{64} << 10, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace

Engine::Engine(assemble::Program program, const EngineOptions& options)
    : program_(std::move(program)), options_(options) {
  INTERNAL_CHECK(options.replicas >= 1, options.replicas, " replicas");
  allocate();
  for (const assemble::Stream& stream : program_.streams) {
    SliceMap& map = slices_.emplace_back();
    map.iterations = program_.device_iterations;
    map.groups.replicas = options.replicas;
    map.per_iteration = stream.per_iteration;
    map.repeat = stream.repeat;
    if (stream.is_input) {
      map.groups.size = options.input_group_size;
      map.groups.is_orthogonal = options.is_input_group_orthogonal;
    }
    stream_times_.emplace_back(stream.repeat ? 0 : map.host_slices());
    sums_.emplace_back();
  }
  is_flushing_ = program_.settings.is_on("flush_denormals");
  if (!program_.checks.empty()) {
    watch_ = std::make_unique<FloatWatch>(program_, options.records_floats, options.replicas);
  }
  timestamps_.resize(static_cast<size_t>(program_.device_iterations));
  reduce_inputs_.reserve(arenas_.size());
  reduce_outputs_.reserve(arenas_.size());
  for (const assemble::Collective& what : program_.collectives) {
    const int64_t size = what.group_size;
    USER_CHECK(size == 0 || (size > 0 && options.replicas % size == 0),
               "[run] an all_reduce works in groups of ", size, " replicas, there are ",
               options.replicas, ". Give a divisor of their number.");
  }
}

Arena Engine::make_arena() const {
  Arena arena(program_.arena_bytes);
  for (const assemble::Extent& extent : program_.scratch) {
    arena.use_small_pages(extent.begin, extent.end);
  }
  for (const assemble::Extent& extent : program_.resident) {
    arena.populate(extent.begin, extent.end);
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

void Engine::allocate() {
  // Pages beyond the limit would end the process when they are populated.
  const int64_t limit = memory_limit();
  USER_CHECK(program_.arena_bytes <= limit / replicas(), "[run] the memory of ", replicas(),
             " replicas needs ", program_.arena_bytes, " bytes for each, this process may have ",
             limit, " bytes in all. Try a smaller batch or fewer replicas.");
  std::vector<Arena> arenas;
  std::vector<std::vector<void*>> pointers;
  for (int r = 0; r < replicas(); ++r) {
    std::byte* base = arenas.emplace_back(make_arena()).data();
    std::vector<void*>& at = pointers.emplace_back();
    at.reserve(program_.offsets.size());
    for (const int64_t offset : program_.offsets) {
      at.push_back(offset < 0 ? nullptr : base + offset);
    }
  }
  arenas_ = std::move(arenas);
  pointers_ = std::move(pointers);
}

bool Engine::is_same_in_replicas(const assemble::State& state) const {
  const std::byte* first = state_data(state, 0);
  for (int r = 1; r < replicas(); ++r) {
    const std::byte* other = state_data(state, r);
    const bool is_same =
        other == first ||
        std::memcmp(first, other, static_cast<size_t>(state.type.bytes())) == 0;
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
      copies.emplace_back(at, at + state.type.bytes());
    }
  }
  shared_.clear();
  pointers_.clear();
  arenas_.clear();
}

void Engine::restore() {
  if (has_memory()) return;
  allocate();
  for (const assemble::State& state : program_.states) {
    const auto bytes = static_cast<size_t>(state.type.bytes());
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
    if (copies.empty()) copies.emplace_back(static_cast<size_t>(state.type.bytes()));
    const std::vector<std::byte> first = copies.front();
    copies.resize(static_cast<size_t>(replicas()), first);
    return copies[static_cast<size_t>(replica)].data();
  }
  if (const auto found = shared_.find(state.path); found != shared_.end()) {
    for (int r = 0; r < replicas(); ++r) {
      std::byte* at = arena(r) + state.addr;
      std::memcpy(at, found->second->data(), static_cast<size_t>(state.type.bytes()));
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
    arenas_[static_cast<size_t>(r)].release(state.addr, state.addr + state.type.bytes());
  }
  return true;
}

// Views of a state point into it, too.
void Engine::point_state(const assemble::State& state, int replica, std::byte* at) {
  std::vector<void*>& pointers = pointers_[static_cast<size_t>(replica)];
  for (size_t i = 0; i < pointers.size(); ++i) {
    const int64_t offset = program_.offsets[i] - state.addr;
    if (offset >= 0 && offset < state.type.bytes()) pointers[i] = at + offset;
  }
}

void Engine::run(const std::vector<void*>& host, int threads, const std::function<void()>& poll) {
  USER_CHECK(host.size() == program_.streams.size(), "[run] ", host.size(),
             " host tensors were given, the program has ", program_.streams.size(), " streams.");
  USER_CHECK(has_memory(), "[run] the program's memory was released. Call restore() first.");
  host_ = host.data();
  threads_ = std::clamp(threads, 1, program_.threads);
  iteration_ = 0;
  poll_ = poll ? &poll : nullptr;
  next_poll_ns_ = now_ns() + poll_interval_ns;
  const SettingsScope scope(&program_.settings);
  const ProgramMode mode(is_flushing_);
  if (is_stale_ && program_.preprocess >= 0) {
    run_joint(program_.blocks[static_cast<size_t>(program_.preprocess)], 0);
    give_back_freed_memory();  // it is used once
  }
  is_stale_ = false;
  if (watch_ != nullptr) watch_states();
  const bool is_single = program_.device_loop < 0;
  if (is_single) timestamps_[0][0] = now_ns();
  run_joint(program_.blocks[0], 0);
  if (is_single) timestamps_[0][1] = now_ns();
}

void Engine::poll() {
  if (poll_ == nullptr || now_ns() < next_poll_ns_) return;
  (*poll_)();
  next_poll_ns_ = now_ns() + poll_interval_ns;
}

bool Engine::needs_all_replicas(const Instruction& instruction) const {
  switch (instruction.kind) {
    case Instruction::Kind::all_reduce: return true;
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
    for (int r = 0; end > begin && r < replicas(); ++r) run_range(block, begin, end, r, inner);
    if (end == count) return;
    const Instruction& joint = block.instructions[end];
    if (joint.kind == Instruction::Kind::loop) {
      run_joint_loop(joint, inner);
    } else {
      reduce(joint);
      if (watch_ != nullptr) watch_reduction(joint);
    }
    begin = end + 1;
  }
}

void Engine::run_joint_loop(const Instruction& loop, int64_t inner) {
  const Block& body = program_.blocks[static_cast<size_t>(loop.index)];
  const bool is_device_loop = loop.index == program_.device_loop;
  if (watch_ != nullptr) watch_->enter_loop(loop.index);
  for (int64_t i = 0; i < loop.count; ++i) {
    poll();
    if (watch_ != nullptr) watch_->next(i);
    if (!is_device_loop) {
      run_joint(body, inner * loop.count + i);
      continue;
    }
    iteration_ = i;
    timestamps_[static_cast<size_t>(i)][0] = now_ns();
    run_joint(body, 0);
    timestamps_[static_cast<size_t>(i)][1] = now_ns();
  }
  if (watch_ != nullptr) watch_->leave_loop();
}

void Engine::run_range(const Block& block, size_t begin, size_t end, int replica, int64_t inner) {
  size_t i = begin;
  try {
    if (watch_ != nullptr) {
      for (; i < end; ++i) run_watched(block.instructions[i], replica, inner);
    } else if (is_profiling_) {
      for (; i < end; ++i) run_timed(block.instructions[i], replica, inner);
    } else {
      for (; i < end; ++i) run_one(block.instructions[i], replica, inner);
    }
  } catch (const UserError& error) {
    throw_with_place(error, block.instructions[i]);
  } catch (const std::bad_alloc&) {
    throw_with_place(UserError("[run] the system has no memory left for what an op computes with. "
                               "Try a smaller batch or fewer replicas.",
                               "MemoryError"),
                     block.instructions[i]);
  }
}

// A loop's instruction has no place: the one inside has spoken already.
void Engine::throw_with_place(const UserError& error, const Instruction& instruction) const {
  const std::string& place = program_.labels[static_cast<size_t>(instruction.label)];
  if (place.empty()) throw error;
  throw UserError(concat(error.what(), "\n  at ", place, ", step run"), error.kind);
}

void Engine::set_profiling(bool is_on) {
  is_profiling_ = is_on;
  if (is_on) spent_.assign(program_.sources.size(), {});
}

void Engine::run_timed(const Instruction& instruction, int replica, int64_t inner) {
  if (instruction.kind == Instruction::Kind::loop) return run_one(instruction, replica, inner);
  const int64_t start = now_ns();
  run_one(instruction, replica, inner);
  Spent& spent = spent_[static_cast<size_t>(instruction.source)];
  spent.ns += now_ns() - start;
  ++spent.runs;
}

void* const* Engine::pointers(const Instruction& instruction, int replica) const {
  return pointers_[static_cast<size_t>(replica)].data() + instruction.first_pointer;
}

void Engine::run_one(const Instruction& instruction, int replica, int64_t inner) {
  void* const* at = pointers(instruction, replica);
  const auto index = static_cast<size_t>(instruction.index);
  switch (instruction.kind) {
    case Instruction::Kind::run: {
      void* const* outputs = at + instruction.operand_count;
      auto* scratch = static_cast<std::byte*>(outputs[instruction.result_count]);
      program_.kernels[index]({at, outputs, scratch, threads_});
      return;
    }
    case Instruction::Kind::copy: return copy_bytes(at[1], at[0], instruction.bytes, threads_);
    case Instruction::Kind::stream_in:
      return stream_in(instruction, at[0], {iteration_, replica, inner});
    case Instruction::Kind::stream_out:
      return stream_out(instruction, at[0], {iteration_, replica, inner});
    case Instruction::Kind::bind:
      return bind(instruction, replica, {iteration_, replica, inner});
    case Instruction::Kind::loop:
      return run_loop(instruction,
                      instruction.is_conditional ? static_cast<const bool*>(at[0]) : nullptr,
                      replica, inner);
    case Instruction::Kind::poison:
      std::memset(at[0], poison_byte, static_cast<size_t>(instruction.bytes));
      return;
    case Instruction::Kind::all_reduce: break;
  }
  INTERNAL_CHECK(false, "an all_reduce ran for one replica");
}

// `holds`: of a conditional loop, whether it goes on.
void Engine::run_loop(const Instruction& loop, const bool* holds, int replica, int64_t inner) {
  const Block& body = program_.blocks[static_cast<size_t>(loop.index)];
  if (watch_ != nullptr) watch_->enter_loop(loop.index);
  for (int64_t i = 0; holds != nullptr ? *holds : i < loop.count; ++i) {
    poll();
    if (watch_ != nullptr) watch_->next(i);
    run_range(body, 0, body.instructions.size(), replica, inner * loop.count + i);
  }
  if (watch_ != nullptr) watch_->leave_loop();
}

void Engine::reduce(const Instruction& instruction) {
  const assemble::Collective& what =
      program_.collectives[static_cast<size_t>(instruction.index)];
  const int64_t size = what.group_size == 0 ? replicas() : what.group_size;
  const ReplicaGroups groups{replicas(), size, what.is_orthogonal};
  for (int64_t group = 0; group < groups.count(); ++group) {
    reduce_inputs_.clear();
    reduce_outputs_.clear();
    for (int r = 0; r < replicas(); ++r) {
      if (groups.of(r) != group) continue;
      void* const* at = pointers(instruction, r);
      reduce_inputs_.push_back(at[0]);
      reduce_outputs_.push_back(at[1]);
    }
    reduce_elements({what.dtype, what.numel, what.is_mean}, reduce_inputs_, reduce_outputs_,
                    threads_);
  }
}

void Engine::bind(const Instruction& instruction, int replica, const Step& step) {
  const assemble::Direct& direct = program_.directs[static_cast<size_t>(instruction.index)];
  const auto stream = static_cast<size_t>(direct.stream);
  const SliceMap& slices = slices_[stream];
  int64_t slice = slices.input_slice(step);
  if (!program_.streams[stream].is_input) {
    slice = slices.adds(step) ? -1 : slices.output_slice(step);
  } else if (slices.is_timed(step)) {
    const int64_t now = now_ns();
    stream_times_[stream][static_cast<size_t>(slice)] = {now, now};
  }
  std::byte* at = slice < 0 ? arena(replica) + direct.addr
                            : static_cast<std::byte*>(host_[stream]) + slice * instruction.bytes;
  std::vector<void*>& pointers = pointers_[static_cast<size_t>(replica)];
  for (const auto& use : direct.uses) pointers[static_cast<size_t>(use.pointer)] = at + use.offset;
}

void Engine::stream_in(const Instruction& instruction, void* to, const Step& step) {
  const auto index = static_cast<size_t>(instruction.index);
  const int64_t slice = slices_[index].input_slice(step);
  const auto* from = static_cast<const std::byte*>(host_[index]);
  const int64_t begin = now_ns();
  copy_bytes(to, from + slice * instruction.bytes, instruction.bytes, threads_);
  if (slices_[index].is_timed(step)) {
    stream_times_[index][static_cast<size_t>(slice)] = {begin, now_ns()};
  }
}

void Engine::stream_out(const Instruction& instruction, const void* from, const Step& step) {
  const auto index = static_cast<size_t>(instruction.index);
  const int64_t slice = slices_[index].output_slice(step);
  if (slice < 0) return;
  auto* to = static_cast<std::byte*>(host_[index]) + slice * instruction.bytes;
  auto& [begin, end] = stream_times_[index][static_cast<size_t>(slice)];
  begin = end = now_ns();
  if (slices_[index].mode == OutputMode::sum) {
    sum(index, to, from, step);
  } else if (from != to) {
    copy_bytes(to, from, instruction.bytes, threads_);
  }
  end = now_ns();
}

void Engine::sum(size_t stream, void* to, const void* from, const Step& step) {
  const ir::Type& type = program_.streams[stream].type;
  const int64_t bytes = type.numel() * bytes_of_sum(type.dtype);
  sums_[stream].resize(static_cast<size_t>(options_.replicas * bytes));
  std::byte* sums = sums_[stream].data() + step.replica * bytes;
  sum_elements(type.dtype, sums, from, type.numel(), !slices_[stream].adds(step));
  if (!slices_[stream].is_last(step)) return;
  USER_CHECK(store_sums(type.dtype, to, sums, type.numel()), "[OutputMode.Sum] the sum of \"",
             program_.streams[stream].name, "\" over the steps of a run is beyond ",
             ir::name_of(type.dtype),
             ". Return it in a type that has room, or use OutputMode.All.");
}

}  // namespace poptorch::run
