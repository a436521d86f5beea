#include "plan/check.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "plan/allocate.h"
#include "plan/contents.h"
#include "support/error.h"
#include "support/memory/align.h"

namespace poptorch::plan {

namespace {

std::string describe(const Content& content) {
  return concat(content.name(), " at ", content.addr, " to ", content.addr + content.bytes,
                " (time ", content.span.begin, " to ", content.span.end, ")");
}

// Walks along time with the set of what is live, by address. As long as none of them overlap,
// a new content can only overlap its two neighbors.
class Sweep {
 public:
  explicit Sweep(const std::vector<Content>& all) : all_(all) {}

  void run() {
    const std::vector<size_t> starts = sorted([&](size_t i) { return all_[i].span.begin; });
    const std::vector<size_t> ends = sorted([&](size_t i) { return all_[i].span.end; });
    size_t ended = 0;
    for (const size_t i : starts) {
      const Content& content = all_[i];
      check_place(content);
      if (content.bytes == 0) continue;
      while (all_[ends[ended]].span.end < content.span.begin) remove(ends[ended++]);
      give_place(i);
      insert(i);
    }
  }

 private:
  std::vector<size_t> sorted(const auto& key) const {
    std::vector<size_t> order(all_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  static void check_place(const Content& content) {
    INTERNAL_CHECK(content.addr >= 0 && content.addr <= ir::most_bytes && content.bytes >= 0 &&
                       content.bytes <= ir::most_bytes - content.addr,
                   "[plan] ", content.name(), ", ", content.bytes, " bytes at ", content.addr,
                   ", is outside the arena");
    INTERNAL_CHECK(content.addr % alignment_bytes == 0, "[plan] ", describe(content),
                   " is not at a multiple of ", alignment_bytes);
  }

  void remove(size_t i) {
    const auto at = alive_.find(all_[i].addr);
    if (at != alive_.end() && at->second == i) alive_.erase(at);
  }

  // What the new content takes the memory of in place must end right here.
  void give_place(size_t i) {
    const Content& content = all_[i];
    const auto at = alive_.find(content.addr);
    if (at == alive_.end()) return;
    const Content& old = all_[at->second];
    if (old.taken_by != static_cast<int>(i) || old.span.end != content.span.begin) return;
    if (old.bytes == content.bytes) alive_.erase(at);
  }

  void insert(size_t i) {
    const Content& content = all_[i];
    const auto next = alive_.lower_bound(content.addr);
    if (next != alive_.end() && next->first < content.addr + content.bytes) fail(i, next->second);
    if (next != alive_.begin()) {
      const size_t before = std::prev(next)->second;
      if (all_[before].addr + all_[before].bytes > content.addr) fail(i, before);
    }
    alive_.emplace(content.addr, i);
  }

  [[noreturn]] void fail(size_t i, size_t other) const {
    throw InternalError(concat("[plan] two values that are live at the same time share memory: ",
                               describe(all_[other]), " and ", describe(all_[i])),
                        ". Please report this with the dump of POPTORCH_DUMP_IR.");
  }

  const std::vector<Content>& all_;
  std::map<int64_t, size_t> alive_;
};

}  // namespace

void check(const ir::Module& module) {
  const Contents contents = find_contents(module);
  Sweep(contents.all).run();
}

}  // namespace poptorch::plan
