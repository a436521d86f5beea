// One line of time through the nested graphs of a scheduled module, and when each value is live on
// it.
//
// An op takes one position. A loop takes four or more, and the body's ops stand between them:
//
//   begin      the operands are read
//   begin + 1  the body is entered: its `input` values are there
//   ...        the body's ops
//   end - 1    the body is left: its outputs are read
//   end        the loop's results are there
//
// A body runs many times but stands once: what is live around it is live all the while. The graph
// `preprocess`, where there is one, stands before `main`.
#pragma once

#include <unordered_map>

#include "ir/graph.h"

namespace poptorch::plan {

struct Span {
  int begin = 0;
  int end = 0;

  bool overlaps(const Span& other) const { return begin <= other.end && other.begin <= end; }
};

struct Timeline {
  std::unordered_map<const ir::Op*, Span> ops;
  std::unordered_map<const ir::Graph*, Span> graphs;  // from entry to exit
  // From definition to last use; an unused value ends where it begins. `state` and `input`
  // values begin at graph entry.
  std::unordered_map<const ir::Value*, Span> values;
  int end = 0;
};

// A graph that two loops name is an internal error (its values have one address), and so is one
// that none names.
Timeline make_timeline(const ir::Module& module);

}  // namespace poptorch::plan
