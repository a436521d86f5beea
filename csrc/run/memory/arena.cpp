#include "run/memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "run/memory/page_map.h"
#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr int64_t huge_page_bytes = int64_t{2} << 20;

int64_t mapped_bytes(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
}

#ifdef MADV_POPULATE_WRITE
constexpr int populate_advice = MADV_POPULATE_WRITE;
#else
constexpr int populate_advice = 23;  // of Linux 5.14; older headers do not name it
#endif

}  // namespace

Arena::Arena(int64_t bytes) : bytes_(bytes), process_(getpid()) {
  // One page more than needed, the ends given back, so that the start is aligned to a huge page.
  const int64_t wanted = mapped_bytes(bytes);
  const int64_t reserved = wanted + huge_page_bytes;
  void* start = mmap(nullptr, static_cast<size_t>(reserved), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  USER_CHECK(start != MAP_FAILED, "[run] the system has no ", reserved,
             " bytes of memory for the program's arena. Try a smaller batch or fewer replicas.");
  auto* first = static_cast<std::byte*>(start);
  const int64_t before = -reinterpret_cast<int64_t>(first) & (huge_page_bytes - 1);
  if (before > 0) munmap(first, static_cast<size_t>(before));
  data_ = first + before;
  const int64_t after = huge_page_bytes - before;
  if (after > 0) munmap(data_ + wanted, static_cast<size_t>(after));
  madvise(data_, static_cast<size_t>(wanted), MADV_HUGEPAGE);
  // A forked data loader worker must not make the parent copy pages at its next writes.
  madvise(data_, static_cast<size_t>(wanted), MADV_DONTFORK);
}

Arena::~Arena() {
  if (data_ != nullptr && getpid() == process_) {
    munmap(data_, static_cast<size_t>(mapped_bytes(bytes_)));
  }
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      process_(other.process_) {}

// One call is several times faster than touching the pages, where the system has it.
void Arena::populate(int64_t begin, int64_t end) {
  const int64_t first = begin / huge_page_bytes * huge_page_bytes;
  const int64_t last = std::min(mapped_bytes(end), mapped_bytes(bytes_));
  if (first >= last) return;
  madvise(data_ + first, static_cast<size_t>(last - first), MADV_HUGEPAGE);
  if (madvise(data_ + first, static_cast<size_t>(last - first), populate_advice) == 0) return;
  const auto step = static_cast<int64_t>(page_bytes());
  for (int64_t at = first; at < last; at += step) data_[at] = std::byte{0};
}

void Arena::use_small_pages(int64_t begin, int64_t end) {
  const int64_t first = mapped_bytes(begin), last = end / huge_page_bytes * huge_page_bytes;
  if (first < last) madvise(data_ + first, static_cast<size_t>(last - first), MADV_NOHUGEPAGE);
}

void Arena::release(int64_t begin, int64_t end) {
  const Range pages = Range{data_ + begin, data_ + end}.inner_pages();
  if (pages.bytes() > 0) madvise(pages.begin, pages.bytes(), MADV_DONTNEED);
}

}  // namespace poptorch::run
