// Which process, and which of its threads, the code runs in. Without system calls: each run asks.
#pragma once

namespace poptorch {

// How many forks led here from the process in which this was first called.
int fork_count();

// Whether the calling thread is the main one of its process; in a forked child the only one is.
bool is_main_thread();

}  // namespace poptorch
