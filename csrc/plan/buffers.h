// Which values share memory. A buffer is a run of bytes that several values have one after the
// other (in place, around a loop, into a state) or at the same time (views).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "plan/timeline.h"

namespace poptorch::plan {

struct Buffer {
  enum class Kind { temporary, state, constant };

  Kind kind = Kind::temporary;
  int64_t bytes = 0;
  Span span;  // of all its values
  const ir::Op* op = nullptr;  // that makes its first value
};

// A value's place: a buffer, and bytes into it.
struct Place {
  int buffer = -1;
  int64_t offset = 0;
};

struct Buffers {
  std::vector<Buffer> buffers;
  std::unordered_map<const ir::Value*, Place> places;
  std::map<std::string, int> states;  // path -> buffer
  // For each op with a result in place: the operand for each result, -1: memory of its own.
  std::unordered_map<const ir::Op*, std::vector<int>> inplace;
};

// Works out the buffers of a scheduled module. Where two values cannot share memory that must
// (a loop's operand that is used again later, say), a `contiguous` op is put in.
Buffers make_buffers(ir::Module& module);

}  // namespace poptorch::plan
