// Proof that a plan is right, from the planned module alone and apart from the code that planned.
#pragma once

#include "ir/graph.h"

namespace poptorch::plan {

// Throws an InternalError that names both values when two contents (plan/contents.h) overlap in
// time and space and neither takes the other's place at its end (`inplace`, a loop, a state's
// assign); when an op works in place of what it reads by another operand, too; when a content lies
// outside of any arena or not at a multiple of 64. A module that keeps the rules of verify and
// passes is safe: a kernel gets no address beyond the arena, nor one of another live value.
void check(const ir::Module& module);

}  // namespace poptorch::plan
