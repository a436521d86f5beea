#include "run/run_context.h"

#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "run/clock.h"
#include "run/elements.h"
#include "run/parts.h"
#include "support/parallel.h"

namespace poptorch::run {

namespace {

constexpr int64_t poll_interval_ns = 20'000'000;  // no user waits for less

void copy_bytes(void* to, const void* from, int64_t bytes, int threads) {
  parallel_for(threads, bytes, int64_t{64} << 10, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace

void Poll::start(const std::function<void()>& fn) {
  fn_ = fn ? &fn : nullptr;
  next_ns_ = now_ns() + poll_interval_ns;
}

bool Poll::is_due() const { return fn_ != nullptr && now_ns() >= next_ns_; }

void Poll::call() {
  (*fn_)();
  next_ns_ = now_ns() + poll_interval_ns;
}

void Delay::set(int64_t most_us, int seed) {
  most_us_ = most_us;
  random_.seed(static_cast<uint32_t>(seed) + 1);
}

void Delay::wait() {
  std::uniform_int_distribution<int64_t> us(0, most_us_);
  std::this_thread::sleep_for(std::chrono::microseconds(us(random_)));
}

void RunContext::call_poll() {
  if (gate == nullptr) return poll.call();
  gate->alone([&] { poll.call(); });
}

void RunContext::run(const assemble::Block& block, size_t begin, size_t end, int64_t inner) {
  size_t i = begin;
  try {
    if (watch != nullptr) {
      for (; i < end; ++i) run_watched(block.instructions[i], inner);
    } else if (is_profiling) {
      for (; i < end; ++i) run_timed(block.instructions[i], inner);
    } else {
      for (; i < end; ++i) run_one(block.instructions[i], inner);
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
void RunContext::throw_with_place(const UserError& error, const Instruction& instruction) const {
  const std::string& place = program_.labels[static_cast<size_t>(instruction.label)];
  if (place.empty()) throw error;
  throw UserError(concat(error.what(), "\n  at ", place, ", step run"), error.kind);
}

void RunContext::run_timed(const Instruction& instruction, int64_t inner) {
  if (instruction.kind == Instruction::Kind::loop) return run_one(instruction, inner);
  const int64_t start = now_ns();
  run_one(instruction, inner);
  Spent& own = spent[static_cast<size_t>(instruction.source)];
  own.ns += now_ns() - start;
  ++own.runs;
}

void RunContext::run_watched(const Instruction& instruction, int64_t inner) {
  if (is_profiling) {
    run_timed(instruction, inner);
  } else {
    run_one(instruction, inner);
  }
  watch->look(instruction, pointers(instruction), iteration, replica, threads);
}

void RunContext::run_one(const Instruction& instruction, int64_t inner) {
  if (deadline != nullptr) deadline->check();
  void* const* at = pointers(instruction);
  const auto index = static_cast<size_t>(instruction.index);
  switch (instruction.kind) {
    case Instruction::Kind::run: {
      void* const* outputs = at + instruction.operand_count;
      auto* scratch = static_cast<std::byte*>(outputs[instruction.result_count]);
      program_.kernels[index]({at, outputs, scratch, threads});
      return;
    }
    case Instruction::Kind::copy: return copy_bytes(at[1], at[0], instruction.bytes, threads);
    case Instruction::Kind::stream_in:
      return stream_in(instruction, at[0], {iteration, replica, inner});
    case Instruction::Kind::stream_out:
      return stream_out(instruction, at[0], {iteration, replica, inner});
    case Instruction::Kind::bind: return bind(instruction, {iteration, replica, inner});
    case Instruction::Kind::loop:
      return run_loop(instruction,
                      instruction.is_conditional ? static_cast<const bool*>(at[0]) : nullptr,
                      inner);
    case Instruction::Kind::poison:
      std::memset(at[0], poison_byte, static_cast<size_t>(instruction.bytes));
      return;
    case Instruction::Kind::shard: {
      const assemble::Collective& what = program_.collectives[index];
      const Part part(what.numels[0], what.shards, replica);
      return part.write(at[0], at[1], ir::item_bytes(what.dtype));
    }
    case Instruction::Kind::collective: break;
  }
  INTERNAL_CHECK(false, "a collective ran for one replica");
}

// `holds`: of a conditional loop, whether it goes on.
void RunContext::run_loop(const Instruction& loop, const bool* holds, int64_t inner) {
  const assemble::Block& body = program_.blocks[static_cast<size_t>(loop.index)];
  enter_loop(loop.index);
  for (int64_t i = 0; holds != nullptr ? *holds : i < loop.count; ++i) {
    next_iteration(i);
    run(body, 0, body.instructions.size(), inner * loop.count + i);
  }
  leave_loop();
}

void RunContext::bind(const Instruction& instruction, const Step& step) {
  const assemble::Direct& direct = program_.directs[static_cast<size_t>(instruction.index)];
  const auto stream = static_cast<size_t>(direct.stream);
  const SliceMap& slices = host_.slices[stream];
  int64_t slice = slices.input_slice(step);
  if (!program_.streams[stream].is_input) {
    slice = slices.adds(step) ? -1 : slices.output_slice(step);
  } else if (slices.is_timed(step)) {
    const int64_t now = now_ns();
    host_.times[stream][static_cast<size_t>(slice)] = {now, now};
  }
  std::byte* at = slice < 0
                      ? memory->arena.data() + direct.addr
                      : static_cast<std::byte*>(host_.tensors[stream]) + slice * instruction.bytes;
  for (const auto& use : direct.uses) {
    memory->pointers[static_cast<size_t>(use.pointer)] = at + use.offset;
  }
}

void RunContext::stream_in(const Instruction& instruction, void* to, const Step& step) {
  const auto index = static_cast<size_t>(instruction.index);
  const int64_t slice = host_.slices[index].input_slice(step);
  const auto* from = static_cast<const std::byte*>(host_.tensors[index]);
  const int64_t begin = now_ns();
  copy_bytes(to, from + slice * instruction.bytes, instruction.bytes, threads);
  if (host_.slices[index].is_timed(step)) {
    host_.times[index][static_cast<size_t>(slice)] = {begin, now_ns()};
  }
}

void RunContext::stream_out(const Instruction& instruction, const void* from, const Step& step) {
  const auto index = static_cast<size_t>(instruction.index);
  const int64_t slice = host_.slices[index].output_slice(step);
  if (slice < 0) return;
  auto* to = static_cast<std::byte*>(host_.tensors[index]) + slice * instruction.bytes;
  auto& [begin, end] = host_.times[index][static_cast<size_t>(slice)];
  begin = end = now_ns();
  if (host_.slices[index].mode == OutputMode::sum) {
    sum(index, to, from, step);
  } else if (from != to) {
    copy_bytes(to, from, instruction.bytes, threads);
  }
  end = now_ns();
}

void RunContext::sum(size_t stream, void* to, const void* from, const Step& step) {
  const assemble::Stream& what = program_.streams[stream];
  const int64_t numel = what.type.numel();
  std::byte* sums =
      host_.sums[stream].data() + step.replica * numel * bytes_of_sum(what.type.dtype);
  sum_elements(what.type.dtype, sums, from, numel, !host_.slices[stream].adds(step));
  if (!host_.slices[stream].is_last(step)) return;
  USER_CHECK(store_sums(what.type.dtype, to, sums, numel), "[OutputMode.Sum] the sum of \"",
             what.name, "\" over the steps of a run is beyond ", ir::name_of(what.type.dtype),
             ". Return it in a type that has room, or use OutputMode.All.");
}

}  // namespace poptorch::run
