#include "support/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "support/error.h"

namespace poptorch {

int fork_count() {
  static std::atomic<int> count = 0;
  static const int failed = pthread_atfork(nullptr, nullptr, [] { ++count; });
  INTERNAL_CHECK(failed == 0, "pthread_atfork failed with ", failed);
  return count;
}

bool is_main_thread() {
  struct Known {
    int forks = -1;
    bool is_main = false;
  };
  static thread_local Known known;
  if (known.forks != fork_count()) known = {fork_count(), gettid() == getpid()};
  return known.is_main;
}

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace poptorch
