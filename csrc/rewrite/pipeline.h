// Step 3, rewrite: what makes a program better on any target.
#pragma once

#include "rewrite/driver.h"

namespace poptorch::rewrite {

// The passes of every compilation, in order (pipeline.cpp says where the order matters).
std::vector<std::string> pipeline();

// Runs them; returns how many are done.
int64_t rewrite(ir::Module& module, const PassOptions& options = {}, const Observer& observer = {});

}  // namespace poptorch::rewrite
