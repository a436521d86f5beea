// Memory for work that needs large blocks for a moment, again and again: the dry runs of kernels,
// one after the other. Each fresh page is cleared by the system first, which can take longer than
// what is computed in it; here freed blocks are used again, in huge pages where the system has
// them.
//
//   WorkMemory memory;                      from here on WorkMemory::current() of this thread
//   void* block = memory.take(bytes);  ...  memory.give_back(block);
//
// Its end gives everything back to the system. Belongs to one thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace poptorch {

class WorkMemory {
 public:
  WorkMemory();
  ~WorkMemory();
  WorkMemory(const WorkMemory&) = delete;
  WorkMemory& operator=(const WorkMemory&) = delete;

  // The innermost one of this thread, nullptr when there is none.
  static WorkMemory* current();

  // A block that begins on a cache line, with whatever was there before. std::bad_alloc when the
  // system has no more memory.
  void* take(size_t bytes);
  void give_back(void* block);
  // A taken block that stays to the end of the process, with its contents.
  void keep(void* block);
  // As many zeros, to be read only, until the end. Calls share them, and they take no memory: all
  // their pages are the system's one page of zeros.
  std::byte* zeros(size_t bytes);

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    size_t bytes = 0;
  };
  struct Chunk {
    Mapping memory;
    std::map<size_t, size_t> taken;  // bytes by offset
    bool is_kept = false;
  };
  static Mapping map(size_t bytes);
  static void unmap(const Mapping& mapping);
  static void unmap_unless_kept(const Chunk& chunk);
  Chunk& chunk_of(const void* block);
  static void* take_from(Chunk& chunk, size_t bytes);
  void drop_unused();

  std::vector<Chunk> chunks_;
  std::vector<Mapping> zeros_;  // the last one is the largest
  WorkMemory* outer_;
};

}  // namespace poptorch
