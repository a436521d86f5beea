#include <sched.h>

#include <cstdlib>
#include <set>
#include <string>

#include "runtime/program.h"
#include "support/concat.h"
#include "support/files.h"

namespace poptorch::runtime {

namespace {

int from_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Which core a processor of Linux belongs to, by the processors that share it.
std::string core_of(int processor) {
  const std::string path = concat("/sys/devices/system/cpu/cpu", processor,
                                  "/topology/thread_siblings_list");
  return read_whole(path).value_or(concat(processor));
}

}  // namespace

int default_threads() {
  for (const char* name : {"MKL_NUM_THREADS", "OMP_NUM_THREADS"}) {
    if (const int wanted = from_environment(name); wanted > 0) return wanted;
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &allowed)) cores.insert(core_of(processor));
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

}  // namespace poptorch::runtime
