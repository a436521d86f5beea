// Which process, and which of its threads, the code runs in; and its environment.
#pragma once

#include <string>

namespace poptorch {

// How many forks led here from the process in which this was first called. Without a system call,
// as is_main_thread: each run asks.
int fork_count();

// Whether the calling thread is the main one of its process; in a forked child the only one is.
bool is_main_thread();

// The value of an environment variable; empty where it is not set.
std::string environment_variable(const char* name);

}  // namespace poptorch
