// Step 5, lower: a placed program in the form that the CPU computes. Every op keeps its IPU, stage
// and phase, and an op that stands for several stands where all of these were.
#pragma once

#include "rewrite/driver.h"

namespace poptorch::lower::cpu {

// Those of this folder behind those of rewrite, which run here again. In the order of passes.def.
const std::vector<rewrite::Pass>& all_passes();

// The passes of every compilation, in order (pipeline.cpp says where the order matters).
std::vector<std::string> pipeline();

// Runs them; returns how many are done.
int64_t lower(ir::Module& module, const rewrite::PassOptions& options = {},
              const rewrite::Observer& observer = {});

}  // namespace poptorch::lower::cpu
