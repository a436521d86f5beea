// The passes of the step rewrite: those that serve any target. None of them names a kernel, a
// layout or a cache. One file each in this folder, one line each in passes.def, which declares the
// function and gives it its name and help text; what a pass must keep to stands in driver.h.
#pragma once

#include "rewrite/driver.h"

namespace poptorch::rewrite {

#define PASS(name, off_for, doc) bool name(ir::Module& module);
#include "rewrite/passes.def"
#undef PASS

// In the order of passes.def.
const std::vector<Pass>& passes();

}  // namespace poptorch::rewrite
