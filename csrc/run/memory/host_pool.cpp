#include "run/memory/host_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "support/error.h"

namespace poptorch::run {

namespace {

constexpr size_t cache_line_bytes = 64;
constexpr size_t huge_page_bytes = size_t{2} << 20;

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

void* allocate(size_t bytes) {
  const bool is_large = bytes >= huge_page_bytes;
  const size_t alignment = is_large ? huge_page_bytes : cache_line_bytes;
  void* memory = std::aligned_alloc(alignment, rounded(bytes, alignment));
  USER_CHECK(memory != nullptr, "[run] the system has no ", bytes,
             " bytes of memory for a result. Return fewer of them (outputMode).");
  if (is_large) madvise(memory, bytes / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

HostPool::~HostPool() {
  for (const auto& [bytes, blocks] : blocks_) {
    for (void* memory : blocks.spare) std::free(memory);
  }
}

void HostPool::expect(size_t bytes) {
  if (!has(bytes)) return;
  const std::scoped_lock lock(mutex_);
  ++blocks_[bytes].most;
}

void* HostPool::take(size_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    std::vector<void*>& spare = blocks_[bytes].spare;
    if (!spare.empty()) {
      void* memory = spare.back();
      spare.pop_back();
      return memory;
    }
  }
  return allocate(bytes);
}

void HostPool::give_back(void* memory, size_t bytes) {
  const std::scoped_lock lock(mutex_);
  Blocks& blocks = blocks_[bytes];
  if (blocks.spare.size() < std::max<size_t>(blocks.most, 1)) {
    blocks.spare.push_back(memory);
  } else {
    std::free(memory);
  }
}

}  // namespace poptorch::run
