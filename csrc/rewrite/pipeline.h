// Step 3, rewrite: runs a list of passes over a module.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace poptorch::rewrite {

// The passes of every compilation, in order (pipeline.cpp says where the order matters).
std::vector<std::string> pipeline();

struct PassOptions {
  std::vector<std::string> passes = pipeline();
  int64_t limit = -1;  // stop after so many passes, to bisect a wrong result; negative: run all
  bool verify = true;  // check the module before the first pass and after each
};

// Called after each pass, after verify. It may replace the contents of the module (by a parsed
// copy, say); `number` counts from 1.
struct PassDone {
  int number;
  std::string_view pass;
  bool changed;
  double seconds;  // of the pass alone
};
using Observer = std::function<void(const PassDone&, ir::Module&)>;

// A pass that fails or leaves a broken module is an internal error with the pass's name and the
// text before it. An unknown name is a user error.
void rewrite(ir::Module& module, const PassOptions& options = {}, const Observer& observer = {});

}  // namespace poptorch::rewrite
