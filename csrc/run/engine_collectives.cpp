// What an engine does with all replicas at once: reductions, and the parts of sharded tensors.
#include <algorithm>
#include <cstring>

#include "run/elements.h"
#include "run/engine.h"
#include "run/parts.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::run {

using assemble::Collective;

void* const* Engine::pointers(const Instruction& instruction, int replica) const {
  return memories_[static_cast<size_t>(replica)].pointers.data() + instruction.first_pointer;
}

void Engine::collect(const Instruction& instruction) {
  const Collective& what = program_.collectives[static_cast<size_t>(instruction.index)];
  switch (what.kind) {
    case Collective::Kind::all_reduce:
      for (size_t i = 0; i < what.numels.size(); ++i) all_reduce(instruction, i);
      break;
    case Collective::Kind::reduce_scatter: reduce_scatter(instruction); break;
    case Collective::Kind::all_gather: return all_gather(instruction);
    case Collective::Kind::shard: INTERNAL_CHECK(false, "a shard ran for all replicas");
  }
  if (context_.watch != nullptr) watch_reduction(instruction);
}

void Engine::all_reduce(const Instruction& instruction, size_t tensor) {
  const Collective& what = program_.collectives[static_cast<size_t>(instruction.index)];
  const int64_t size = what.group_size == 0 ? replicas() : what.group_size;
  const ReplicaGroups groups{replicas(), size, what.is_orthogonal};
  for (int64_t group = 0; group < groups.count(); ++group) {
    reduce_inputs_.clear();
    reduce_outputs_.clear();
    for (int r = 0; r < replicas(); ++r) {
      if (groups.of(r) != group) continue;
      void* const* at = pointers(instruction, r);
      reduce_inputs_.push_back(at[tensor]);
      reduce_outputs_.push_back(at[what.numels.size() + tensor]);
    }
    reduce_inputs({what.dtype, what.numels[tensor], what.is_mean});
  }
}

void Engine::reduce_scatter(const Instruction& instruction) {
  const Collective& what = program_.collectives[static_cast<size_t>(instruction.index)];
  const int64_t bytes = ir::item_bytes(what.dtype);
  for (int r = 0; r < replicas(); ++r) {
    const Part part(what.numels[0], what.shards, r);
    reduce_inputs_.clear();
    for (int from = 0; from < replicas(); ++from) {
      const auto* whole = static_cast<const std::byte*>(pointers(instruction, from)[0]);
      reduce_inputs_.push_back(whole + part.first * bytes);
    }
    void* to = pointers(instruction, r)[1];
    reduce_outputs_.assign(1, to);
    reduce_inputs({what.dtype, part.count, what.is_mean});
    part.fill(to, bytes);
  }
}

void Engine::all_gather(const Instruction& instruction) {
  const Collective& what = program_.collectives[static_cast<size_t>(instruction.index)];
  const int64_t bytes = ir::item_bytes(what.dtype);
  parallel_for(threads_, replicas(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t to = begin; to < end; ++to) {
      void* whole = pointers(instruction, static_cast<int>(to))[1];
      for (int r = 0; r < replicas(); ++r) {
        Part(what.numels[0], what.shards, r).read(pointers(instruction, r)[0], whole, bytes);
      }
    }
  });
}

void Engine::reduce_inputs(const Reduction& what) {
  constexpr int64_t grain = 1 << 14;  // numbers that are worth a worker
  const int64_t parts = std::min<int64_t>(active_, what.numel / grain);
  if (!is_side(HostForm::replicas) || parts < 2) {
    return reduce_elements(what, reduce_inputs_, reduce_outputs_, threads_);
  }
  workers_->run([&](int worker) {
    Reduction part = what;
    part.first = what.numel * worker / parts;
    part.numel = what.numel * (worker + 1) / parts - part.first;
    if (worker < parts) reduce_elements(part, reduce_inputs_, reduce_outputs_, 1);
  });
}

// What one replica gives may be no fault of the sum.
void Engine::watch_reduction(const Instruction& instruction) {
  const Collective& what = program_.collectives[static_cast<size_t>(instruction.index)];
  for (size_t i = 0; i < what.numels.size(); ++i) {
    const ir::Type type{what.dtype, {what.numels[i]}, {}};
    for (int r = 0; r < replicas(); ++r) {
      const void* given = pointers(instruction, r)[i];
      if (!kind_of_non_finite(type, given, context_.threads).empty()) return;
    }
  }
  try {
    for (int r = 0; r < replicas(); ++r) {
      context_.watch->look(instruction, pointers(instruction, r), context_.iteration, r,
                           context_.threads);
    }
  } catch (const UserError& error) {
    context_.throw_with_place(error, instruction);
  }
}

}  // namespace poptorch::run
