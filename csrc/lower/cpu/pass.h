// The passes that bring a placed program into the form that the CPU computes: layouts, packed
// weights, fused ops, parts that fit caches, views, results in place. One file each in this folder,
// one line each in passes.def; what a pass must keep to stands in rewrite/driver.h.
#pragma once

#include "rewrite/driver.h"

namespace poptorch::lower::cpu {

using namespace rewrite;  // what passes share: driver.h, edit.h, op_list.h, fixed.h

#define PASS(name, off_for, doc) bool name(ir::Module& module);
#include "lower/cpu/passes.def"
#undef PASS

}  // namespace poptorch::lower::cpu
