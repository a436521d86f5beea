// Runs a list of passes over a module, for the steps rewrite and lower alike.
//
// A pass is a named function that edits a module in place. What must hold for every pass:
//   - it works on every graph of the module, and on any module that verify accepts;
//   - it is optional: the program means the same with and without it;
//   - what it makes of ops that are placed is placed as they were (rewrite/edit.h: make_like);
//   - it takes about linear time, and the same module always gives the same result;
//   - it returns true exactly when something changed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "support/settings/switches.h"

namespace poptorch::rewrite {

struct Pass : Switch {
  bool (*run)(ir::Module&);
};

struct PassOptions {
  int64_t done = 0;    // passes that ran in the step before: they count
  int64_t limit = -1;  // stop when so many are done, to bisect a wrong result; negative: run all
  bool verify = true;  // check the module before the first pass and after each
};

// Called after each pass, after verify. It may replace the contents of the module (by a parsed
// copy, say); `number` counts from 1, those done before included.
struct PassDone {
  int64_t number;
  std::string_view pass;
  bool changed;
  double seconds;  // of the pass alone
};
using Observer = std::function<void(const PassDone&, ir::Module&)>;

// Runs those passes of `known` that have these names, without what POPTORCH_OFF names, and returns
// how many are done. A pass that fails or leaves a broken module is an internal error with its name
// and the text before it; so is one that leaves an op of a placed module without its place.
int64_t run_passes(ir::Module& module, const std::vector<Pass>& known,
                   const std::vector<std::string>& names, const PassOptions& options,
                   const Observer& observer = {});

}  // namespace poptorch::rewrite
