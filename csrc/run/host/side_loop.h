// A loop whose rounds run side by side, and when a round must wait for the one before: memory that
// several rounds use, and one of them writes, is used in their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "assemble/program.h"

namespace poptorch::run {

struct SideLoop {
  // Instructions [begin, end) of the body. Before them, the round before must have completed its
  // first `after` instructions.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    size_t after = 0;
    bool is_awaited = false;  // the next round waits for its end
  };

  int block = -1;  // the body
  std::vector<Segment> segments;
  std::vector<assemble::Extent> shared;  // all rounds use it where the first one does; in order
};

// The loop over micro-batches, or else that over device iterations; none where replicas meet in a
// round.
std::optional<SideLoop> find_side_loop(const assemble::Program& program);

// How often the loop with this body runs it.
int64_t rounds_of(const assemble::Program& program, int block);

// The extent that an address lies in, in a list in order; nullptr: none.
const assemble::Extent* extent_at(const std::vector<assemble::Extent>& extents, int64_t addr);

}  // namespace poptorch::run
