// Rules that a module must keep, known apart from the code that produces it.
#pragma once

#include "ir/graph.h"

namespace poptorch::ir {

// Loops stand at most so many one in the other: the steps call themselves for each of them.
constexpr int most_nested_loops = 64;

// Each level adds rules: translated: SSA, known ops, operand counts, attribute names and kinds,
// result types equal to what the op row infers, one assign for each state and graph, loops whose
// bodies fit; placed: every op has `ipu` and `stage` and
// reads what is on its IPU; scheduled: every op has `order`, rising;
// planned: every value in memory has an address.
enum class Level { translated, placed, scheduled, planned };

// Throws an InternalError that names graph, op and rule.
void verify(const Module& module, Level level);

}  // namespace poptorch::ir
