#include "run/engine.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "run/elements.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::run {

namespace {

constexpr int poison_byte = 0xff;  // every float of these bytes is NaN

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
    : program_(std::move(program)) {
  INTERNAL_CHECK(options.replicas >= 1, options.replicas, " replicas");
  for (int r = 0; r < options.replicas; ++r) {
    std::byte* base = arenas_.emplace_back(program_.arena_bytes).data();
    if (options.poison) {
      std::memset(base, poison_byte, static_cast<size_t>(program_.arena_bytes));
    }
    for (const assemble::Constant& constant : program_.constants) {
      std::memcpy(base + constant.addr, constant.bytes.data(), constant.bytes.size());
    }
    std::vector<void*>& pointers = pointers_.emplace_back();
    pointers.reserve(program_.offsets.size());
    for (const int64_t offset : program_.offsets) {
      pointers.push_back(offset < 0 ? nullptr : base + offset);
    }
  }
  for (const assemble::Stream& stream : program_.streams) {
    slices_.push_back({.iterations = program_.device_iterations,
                       .replicas = options.replicas,
                       .per_iteration = stream.per_iteration,
                       .repeat = stream.repeat});
  }
  timestamps_.resize(static_cast<size_t>(program_.device_iterations));
  reduce_inputs_.resize(arenas_.size());
  reduce_outputs_.resize(arenas_.size());
}

void Engine::run(const std::vector<void*>& host, int threads) {
  USER_CHECK(host.size() == program_.streams.size(), "[run] ", host.size(),
             " host tensors were given, the program has ", program_.streams.size(), " streams.");
  host_ = host.data();
  threads_ = std::clamp(threads, 1, program_.threads);
  iteration_ = 0;
  const bool is_single = program_.device_loop < 0;
  if (is_single) timestamps_[0][0] = now_ns();
  run_joint(program_.blocks[0], 0);
  if (is_single) timestamps_[0][1] = now_ns();
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
    }
    begin = end + 1;
  }
}

void Engine::run_joint_loop(const Instruction& loop, int64_t inner) {
  const Block& body = program_.blocks[static_cast<size_t>(loop.index)];
  const bool is_device_loop = loop.index == program_.device_loop;
  for (int64_t i = 0; i < loop.count; ++i) {
    if (!is_device_loop) {
      run_joint(body, inner * loop.count + i);
      continue;
    }
    iteration_ = i;
    timestamps_[static_cast<size_t>(i)][0] = now_ns();
    run_joint(body, 0);
    timestamps_[static_cast<size_t>(i)][1] = now_ns();
  }
}

void Engine::run_range(const Block& block, size_t begin, size_t end, int replica, int64_t inner) {
  size_t i = begin;
  try {
    for (; i < end; ++i) run_one(block.instructions[i], replica, inner);
  } catch (const UserError& error) {
    const auto label = static_cast<size_t>(block.instructions[i].label);
    const std::string& place = program_.labels[label];
    // A loop's instruction has no place: the one inside has spoken already.
    if (place.empty()) throw;
    throw UserError(concat(error.what(), "\n  at ", place, ", step run"));
  }
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
    case Instruction::Kind::loop: {
      const Block& body = program_.blocks[index];
      for (int64_t i = 0; i < instruction.count; ++i) {
        run_range(body, 0, body.instructions.size(), replica, inner * instruction.count + i);
      }
      return;
    }
    case Instruction::Kind::poison:
      std::memset(at[0], poison_byte, static_cast<size_t>(instruction.bytes));
      return;
    case Instruction::Kind::all_reduce: break;
  }
  INTERNAL_CHECK(false, "an all_reduce ran for one replica");
}

void Engine::reduce(const Instruction& instruction) {
  for (size_t r = 0; r < arenas_.size(); ++r) {
    void* const* at = pointers(instruction, static_cast<int>(r));
    reduce_inputs_[r] = at[0];
    reduce_outputs_[r] = at[1];
  }
  const assemble::Collective& what =
      program_.collectives[static_cast<size_t>(instruction.index)];
  reduce_elements({what.dtype, what.numel, what.is_mean}, reduce_inputs_, reduce_outputs_,
                  threads_);
}

void Engine::stream_in(const Instruction& instruction, void* to, const Step& step) {
  const auto index = static_cast<size_t>(instruction.index);
  const int64_t slice = slices_[index].input_slice(step);
  const auto* from = static_cast<const std::byte*>(host_[index]);
  copy_bytes(to, from + slice * instruction.bytes, instruction.bytes, threads_);
}

void Engine::stream_out(const Instruction& instruction, const void* from, const Step& step) {
  const auto index = static_cast<size_t>(instruction.index);
  const int64_t slice = slices_[index].output_slice(step);
  if (slice < 0) return;
  auto* to = static_cast<std::byte*>(host_[index]) + slice * instruction.bytes;
  if (!slices_[index].adds(step)) return copy_bytes(to, from, instruction.bytes, threads_);
  const ir::Type& type = program_.streams[index].type;
  add_elements(type.dtype, to, from, type.numel());
}

}  // namespace poptorch::run
