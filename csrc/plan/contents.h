// What memory holds, and when: read from a planned module alone, for the check, the memory report
// and the poisoning of dead memory. It depends on the meaning of the IR alone, not on the planner.
//
// A content is something that must stay unchanged for a span of time: a value with all its views; a
// value that a loop carries unchanged; a state between two assigns; an op's scratch memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/timeline.h"

namespace poptorch::plan {

struct Content {
  enum class Kind { value, state, constant, scratch };

  Kind kind = Kind::value;
  const ir::Op* op = nullptr;  // that makes it (a `state` op, for a state's first content)
  const ir::Value* value = nullptr;   // none: scratch memory
  const std::string* path = nullptr;  // of what a state holds between two assigns
  int64_t addr = 0;
  int64_t bytes = 0;
  Span span;
  int taken_by = -1;    // the content that takes its memory in place, at the end of its span
  int carried_from = -1;  // an `input` that a loop changes: the content of the loop's operand
  bool is_result = false;  // the host is sent all of it

  // For messages: `%3`, `state "fc.weight" (%3)`, ``the scratch memory of `%3 = ...` ``.
  std::string name() const;
};

struct Contents {
  Timeline line;
  std::vector<Content> all;
};

// Internal errors: an address that is absent; views, loops, states and values in place whose
// addresses do not fit together; a value in place of what its op reads twice.
Contents find_contents(const ir::Module& module);

}  // namespace poptorch::plan
