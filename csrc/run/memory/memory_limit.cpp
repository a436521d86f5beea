#include "run/memory/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include "support/files.h"

namespace poptorch::run {

namespace {

// The number in a file; no limit where there is no such file, or another word ("max").
int64_t limit_in(const std::string& path) {
  const std::string text = read_whole(path).value_or("");
  int64_t limit = -1;
  std::from_chars(text.data(), text.data() + text.size(), limit);
  return limit >= 0 ? limit : std::numeric_limits<int64_t>::max();
}

// Of a group and of those that it is part of. A container may see its own group as the top one,
// under the name that it has outside: then only the last of these files exists.
int64_t limit_of(const std::string& mount, std::string group, const char* file) {
  int64_t limit = limit_in(mount + "/" + file);
  for (; group.size() > 1; group.resize(group.rfind('/'))) {
    limit = std::min(limit, limit_in(mount + group + "/" + file));
  }
  return limit;
}

}  // namespace

int64_t memory_limit(const std::string& root) {
  int64_t limit = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const std::string mount = root + "/sys/fs/cgroup";
  // Each line is `number:controllers:/group`; version 2 has the number 0 and no controllers.
  for (const std::string& line : split(read_whole(root + "/proc/self/cgroup").value_or(""), '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] != '/') continue;
    const std::vector<std::string> controllers =
        split(std::string_view(line).substr(first + 1, second - first - 1), ',');
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      limit = std::min(limit, limit_of(mount, group, "memory.max"));
      limit = std::min(limit, limit_of(mount + "/unified", group, "memory.max"));
    } else if (std::ranges::count(controllers, "memory") > 0) {
      limit = std::min(limit, limit_of(mount + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

}  // namespace poptorch::run
