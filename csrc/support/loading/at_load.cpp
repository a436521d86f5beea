#include "support/loading/at_load.h"

#include <atomic>
#include <mutex>

#include "support/error.h"
#include "support/loading/not_linked.h"

namespace poptorch {

namespace {

std::atomic<bool> is_recording = false;

struct Needs {
  std::mutex mutex;
  std::set<std::string> names;
};

Needs& needs() {
  static Needs all;
  return all;
}

}  // namespace

void check_is_linked(std::string_view kind, std::string_view name) {
  USER_CHECK(!is_chosen_build, "[runner] this binary has no ", kind, name,
             ": it was built for other programs. Build one for this file: make runner ",
             "PROGRAM=FILE.");
}

void record_needs() { is_recording = true; }

void note_need(std::string_view kind, std::string_view name) {
  if (!is_recording.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(needs().mutex);
  needs().names.insert(concat(kind, name));
}

std::set<std::string> recorded_needs() {
  const std::lock_guard lock(needs().mutex);
  return needs().names;
}

}  // namespace poptorch
