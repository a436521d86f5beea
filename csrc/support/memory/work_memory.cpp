#include "support/memory/work_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "support/error.h"
#include "support/memory/align.h"

namespace poptorch {
namespace {

constexpr size_t huge_page_bytes = size_t{2} << 20;
// Small blocks share a mapping. Pages that are not used take no memory.
constexpr size_t least_chunk_bytes = 16 * huge_page_bytes;

thread_local WorkMemory* current_memory = nullptr;

}  // namespace

WorkMemory::WorkMemory() : outer_(current_memory) { current_memory = this; }

WorkMemory::~WorkMemory() {
  for (const Chunk& chunk : chunks_) unmap_unless_kept(chunk);
  for (const Mapping& mapping : zeros_) unmap(mapping);
  current_memory = outer_;
}

WorkMemory* WorkMemory::current() { return current_memory; }

WorkMemory::Mapping WorkMemory::map(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  madvise(begin, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(begin), bytes};
}

void WorkMemory::unmap(const Mapping& mapping) { munmap(mapping.begin, mapping.bytes); }

// All but the pages of blocks that are kept.
void WorkMemory::unmap_unless_kept(const Chunk& chunk) {
  constexpr size_t page = huge_page_bytes;
  size_t begin = 0;
  const auto unmap_to = [&](size_t end) {
    if (begin < end) unmap({chunk.memory.begin + begin, end - begin});
  };
  if (chunk.is_kept) {
    for (const auto& [offset, length] : chunk.taken) {
      unmap_to(offset / page * page);
      begin = (offset + length + page - 1) / page * page;
    }
  }
  unmap_to(chunk.memory.bytes);
}

// First fit, at low addresses, so that few pages are ever touched.
void* WorkMemory::take_from(Chunk& chunk, size_t bytes) {
  if (chunk.is_kept) return nullptr;
  size_t at = 0;
  for (const auto& [offset, length] : chunk.taken) {
    if (at + bytes <= offset) break;
    at = offset + length;
  }
  if (at + bytes > chunk.memory.bytes) return nullptr;
  chunk.taken.emplace(at, bytes);
  return chunk.memory.begin + at;
}

// Those too small for the request would only add to the peak.
void WorkMemory::drop_unused() {
  std::erase_if(chunks_, [](const Chunk& chunk) {
    if (!chunk.taken.empty()) return false;
    unmap(chunk.memory);
    return true;
  });
}

void* WorkMemory::take(size_t bytes) {
  const size_t wanted = align_up(std::max<size_t>(bytes, 1));
  for (Chunk& chunk : chunks_) {
    if (void* block = take_from(chunk, wanted)) return block;
  }
  drop_unused();
  chunks_.push_back({map(std::max(wanted, least_chunk_bytes)), {}});
  return take_from(chunks_.back(), wanted);
}

WorkMemory::Chunk& WorkMemory::chunk_of(const void* block) {
  for (Chunk& chunk : chunks_) {
    if (block >= chunk.memory.begin && block < chunk.memory.begin + chunk.memory.bytes) {
      return chunk;
    }
  }
  throw_internal_error(__FILE__, __LINE__, "block", "was not taken from this memory");
}

void WorkMemory::give_back(void* block) {
  Chunk& chunk = chunk_of(block);
  chunk.taken.erase(static_cast<size_t>(static_cast<std::byte*>(block) - chunk.memory.begin));
}

void WorkMemory::keep(void* block) { chunk_of(block).is_kept = true; }

// Smaller ones stay: they may still be read, and zeros take no memory.
std::byte* WorkMemory::zeros(size_t bytes) {
  if (zeros_.empty() || bytes > zeros_.back().bytes) zeros_.push_back(map(bytes));
  return zeros_.back().begin;
}

}  // namespace poptorch
