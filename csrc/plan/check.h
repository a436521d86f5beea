// Proof that a plan is right, from the planned module alone and apart from the code that planned.
#pragma once

#include "ir/graph.h"

namespace poptorch::plan {

// Throws an InternalError that names both values when two contents (plan/contents.h) overlap in
// time and space and neither takes the other's place at its end (`inplace`, a loop, a state's
// assign); or when an address is negative or not a multiple of 64.
void check(const ir::Module& module);

}  // namespace poptorch::plan
