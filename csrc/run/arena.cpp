#include "run/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr int64_t huge_page_bytes = int64_t{2} << 20;

int64_t mapped_bytes(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
}

}  // namespace

Arena::Arena(int64_t bytes) : bytes_(bytes) {
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
  std::memset(data_, 0, static_cast<size_t>(wanted));
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(mapped_bytes(bytes_)));
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

}  // namespace poptorch::run
