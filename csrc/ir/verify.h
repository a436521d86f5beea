// Rules that a module must keep, known apart from the code that produces it.
#pragma once

#include "ir/graph.h"

namespace poptorch::ir {

// Loops stand at most so many one in the other: the steps call themselves for each of them.
constexpr int most_nested_loops = 64;

// What must hold:
//   any        SSA, known ops, operand counts, attribute names and kinds, result types equal to
//              what the op row infers, one assign for each state and graph, loops whose bodies fit
//   translated any, and nothing that only lowering makes (ops/op_def.h); each op that runs on an
//              IPU (ir/part.h) has `part`, or none has: then the program is a forward pass
//   placed     translated; each op that runs on an IPU has `ipu` and `stage`, all or none `phase`,
//              and reads what is on its IPU
//   lowered    placed, but what lowering makes may be there
//   scheduled  any; `part`, `ipu` and `stage`; every op has `order`, rising
//   planned    scheduled; every value in memory has an address
enum class Level { any, translated, placed, lowered, scheduled, planned };

// Throws an InternalError that names graph, op and rule.
void verify(const Module& module, Level level);

// Whether the step place has been: each op that runs on an IPU has `ipu`.
bool is_placed(const Module& module);

}  // namespace poptorch::ir
