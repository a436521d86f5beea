// The standard library and the IR, with the flags of what only compiles programs: nearly all of it
// includes the IR, so little more is compiled again after a change of it.
#include "ir/graph.h"
#include "support/standard_library.h"
