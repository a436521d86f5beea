// Passes: named functions that edit a module in place. One file each in this folder, one line each
// in passes.def, which declares the function and gives it its name and help text.
//
// What must hold for every pass:
//   - it works on every graph of the module, and on any module that verify accepts;
//   - it is optional: the program means the same with and without it;
//   - it takes about linear time, and the same module always gives the same result;
//   - it returns true exactly when something changed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace poptorch::rewrite {

#define PASS(name, doc) bool name(ir::Module& module);
#include "rewrite/passes.def"
#undef PASS

struct Pass {
  std::string_view name;
  std::string_view doc;
  bool (*run)(ir::Module&);
};

// In the order of passes.def.
const std::vector<Pass>& all_passes();
// A user error that lists the names when there is no such pass.
const Pass& find_pass(std::string_view name);

}  // namespace poptorch::rewrite
