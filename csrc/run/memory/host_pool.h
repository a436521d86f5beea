// Host memory for results. Fresh memory from the system costs a page fault for each page, many
// times what writing a result costs; a program called in a loop gets the memory of a result that
// the user has dropped meanwhile.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace poptorch::run {

// Thread-safe. Blocks may outlive the last outside reference to their pool.
class HostPool : public std::enable_shared_from_this<HostPool> {
 public:
  static std::shared_ptr<HostPool> make() { return std::shared_ptr<HostPool>(new HostPool); }
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Whether it has blocks of this size: torch's allocator is as fast for smaller ones.
  static constexpr bool has(size_t bytes) { return bytes >= size_t{1} << 20; }

  // Announces a result of each call: of each size, as many given-back blocks are kept as calls have
  // results, and at least one.
  void expect(size_t bytes);
  // 64-byte aligned, contents arbitrary; a user error when the system has no memory.
  void* take(size_t bytes);
  void give_back(void* memory, size_t bytes);

 private:
  HostPool() = default;

  struct Blocks {
    size_t most = 0;
    std::vector<void*> spare;
  };

  std::mutex mutex_;
  std::map<size_t, Blocks> blocks_;  // by size
};

}  // namespace poptorch::run
