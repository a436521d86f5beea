// What the memory of each IPU holds, and when: read from a placed program whose tasks are
// scheduled.
//
// Parameters, optimizer states, accumulators, constants and stashes have their memory all the time.
// Activations have theirs from the op that makes them to the last op that reads them, in the order
// of the line of time (plan/timeline.h). A round of a pipeline runs the tasks of an IPU in that
// order.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/timeline.h"

namespace poptorch::estimate {

// In the order in which reports list them. `constants` has buffers and the random state, too,
// `activations` every value that lives for a time, such as gradients.
enum class Category {
  parameters,
  optimizer,
  accumulators,
  constants,
  activations,
  stashes,
  streaming,  // not on the chip
};
constexpr size_t category_count = 7;
const char* name_of(Category category);

struct Holding {
  std::string name;  // of the value or the state
  Category category = Category::activations;
  int64_t ipu = 0;
  int64_t bytes = 0;       // for all micro-batches that it has room for
  const ir::Op* op = nullptr;  // that makes it
  bool is_always = false;  // the span does not matter
  plan::Span span{std::numeric_limits<int>::max(), 0};

  bool is_live(int position) const {
    return is_always || (span.begin <= position && position <= span.end);
  }
};

// An op that runs on an IPU.
struct Turn {
  const ir::Op* op = nullptr;
  int64_t ipu = 0;
  int position = 0;  // on the line of time
};

struct Holdings {
  std::vector<Holding> all;   // none without bytes
  std::vector<Turn> turns;    // in the order of positions
  int64_t ipus = 1;
};

// Orders the ops of each graph as they run (schedule/schedule.h). Views have no memory of their
// own. A result takes the memory of an operand that nothing reads later, where the row of the op
// lets it. A value that a task gets from a stash or from streaming memory takes memory when the
// first op reads it. Of the copies from another IPU that there is room for, one takes memory from
// the begin of the round to its last use, the others all the time.
Holdings find_holdings(ir::Module& module);

}  // namespace poptorch::estimate
