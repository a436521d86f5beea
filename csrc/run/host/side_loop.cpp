#include "run/host/side_loop.h"

#include <algorithm>
#include <map>

namespace poptorch::run {

namespace {

using assemble::Extent;
using assemble::Instruction;
using Kind = Instruction::Kind;

// The instructions of a body, by number, that use an extent first and last.
struct Use {
  size_t first = 0;
  size_t last = 0;
  bool is_written = false;
};

class Uses {
 public:
  Uses(const assemble::Program& program, const std::vector<Extent>& shared)
      : program_(program), shared_(shared) {}

  void add(const Instruction& instruction, size_t position) {
    position_ = position;
    visit(instruction);
  }

  const std::map<int64_t, Use>& all() const { return uses_; }

 private:
  void touch(int pointer, bool writes) {
    const Extent* extent = extent_at(shared_, program_.offsets[static_cast<size_t>(pointer)]);
    if (extent == nullptr) return;
    note(extent->begin, writes);
  }

  void note(int64_t key, bool writes) {
    Use& use = uses_.try_emplace(key, Use{position_, position_, false}).first->second;
    use.last = position_;
    use.is_written |= writes;
  }

  void visit(const Instruction& instruction) {
    const int first = instruction.first_pointer;
    switch (instruction.kind) {
      case Kind::run:
        for (int i = 0; i < instruction.operand_count; ++i) touch(first + i, false);
        for (int i = 0; i < instruction.result_count; ++i) {
          touch(first + instruction.operand_count + i, true);
        }
        return;
      case Kind::shard:
      case Kind::copy:
        touch(first, false);
        return touch(first + 1, true);
      case Kind::stream_in:
      case Kind::poison: return touch(first, true);
      case Kind::stream_out:
        touch(first, false);
        return note(-1 - instruction.index, true);  // an output may be added to the ones before
      case Kind::loop: {
        if (instruction.is_conditional) touch(first, false);
        const auto& body = program_.blocks[static_cast<size_t>(instruction.index)];
        for (const Instruction& inner : body.instructions) visit(inner);
        return;
      }
      case Kind::bind:
      case Kind::collective: return;
    }
  }

  const assemble::Program& program_;
  const std::vector<Extent>& shared_;
  size_t position_ = 0;
  std::map<int64_t, Use> uses_;  // by where an extent begins; of outputs negative numbers
};

std::vector<Extent> shared_extents(const assemble::Program& program,
                                   const assemble::Block& body) {
  std::vector<Extent> shared = program.persistent;
  std::erase_if(shared, [&](const Extent& extent) { return extent.begin == body.rng_addr; });
  shared.insert(shared.end(), body.carried.begin(), body.carried.end());
  std::sort(shared.begin(), shared.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  std::vector<Extent> apart;  // of values that lie in others one extent
  for (const Extent& extent : shared) {
    if (apart.empty() || extent.begin >= apart.back().end) {
      apart.push_back(extent);
    } else {
      apart.back().end = std::max(apart.back().end, extent.end);
    }
  }
  return apart;
}

std::vector<SideLoop::Segment> segments_of(const std::map<int64_t, Use>& uses, size_t count) {
  std::vector<size_t> after(count, 0);
  std::vector<bool> is_awaited(count, false);
  for (const auto& [begin, use] : uses) {
    if (!use.is_written) continue;
    after[use.first] = std::max(after[use.first], use.last + 1);
    is_awaited[use.last] = true;
  }
  std::vector<SideLoop::Segment> segments;
  for (size_t i = 0; i < count; ++i) {
    if (segments.empty() || after[i] > 0 || segments.back().is_awaited) {
      segments.push_back({i, i, after[i], false});
    }
    segments.back().end = i + 1;
    segments.back().is_awaited = is_awaited[i];
  }
  return segments;
}

}  // namespace

const Extent* extent_at(const std::vector<Extent>& extents, int64_t addr) {
  const auto is_before = [](int64_t wanted, const Extent& one) { return wanted < one.begin; };
  auto found = std::upper_bound(extents.begin(), extents.end(), addr, is_before);
  if (addr < 0 || found == extents.begin()) return nullptr;
  --found;
  return addr < found->end ? &*found : nullptr;
}

int64_t rounds_of(const assemble::Program& program, int block) {
  for (const assemble::Block& one : program.blocks) {
    for (const Instruction& instruction : one.instructions) {
      const bool is_it = instruction.kind == Kind::loop &&
                         instruction.index == block;
      if (is_it) return instruction.count;
    }
  }
  return 1;
}

std::optional<SideLoop> find_side_loop(const assemble::Program& program) {
  SideLoop loop;
  loop.block = program.micro_loop >= 0 ? program.micro_loop : program.device_loop;
  if (loop.block < 0) return std::nullopt;
  const assemble::Block& body = program.blocks[static_cast<size_t>(loop.block)];
  if (body.is_joint) return std::nullopt;
  loop.shared = shared_extents(program, body);
  Uses uses(program, loop.shared);
  for (size_t i = 0; i < body.instructions.size(); ++i) uses.add(body.instructions[i], i);
  loop.segments = segments_of(uses.all(), body.instructions.size());
  return loop;
}

}  // namespace poptorch::run
