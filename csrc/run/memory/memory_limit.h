// How much memory this process may have.
#pragma once

#include <cstdint>
#include <string>

namespace poptorch::run {

// Bytes: the machine's memory, or less where a control group of Linux (version 1 or 2) limits the
// process or a group around it. A process that touches more is killed.
// `root`: a folder that stands for the root of the file system, for tests.
int64_t memory_limit(const std::string& root = "");

}  // namespace poptorch::run
