// Step 8: a planned module becomes a program: flat instruction lists inside nested loops.
//
// The module's text is the whole truth: order, addresses and the size of the arena are read from
// it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "assemble/program.h"
#include "ir/graph.h"
#include "plan/plan.h"

namespace poptorch::assemble {

struct AssembleOptions {
  int threads = 1;      // the most that a run will use
  bool poison = false;  // fill the memory of dead values with NaN
  bool check_floats = false;  // note what floating-point exceptions are found by
};

// A user error names the ops that have no kernel. Kernels that plan has prepared are taken from
// `prepared`.
Program assemble(const ir::Module& module, const AssembleOptions& options,
                 plan::PreparedOps prepared = {});

// Ops that run, by phase (forward, backward, update) and name; an opaque op counts under the name
// of its overload. With `algorithms`, names say which one computes the op, if there are several:
// "convolution [winograd]".
std::map<std::string, std::map<std::string, int64_t>> op_report(const ir::Module& module,
                                                                bool algorithms = false);

}  // namespace poptorch::assemble
