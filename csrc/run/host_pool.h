// Host memory for results. Fresh memory from the system costs a page fault for each page, many
// times what writing a result costs; a program called in a loop gets the memory of a result that
// the user has dropped meanwhile.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace poptorch::run {

// Thread-safe. Blocks may outlive the last outside reference to their pool.
class HostPool : public std::enable_shared_from_this<HostPool> {
 public:
  static std::shared_ptr<HostPool> make() { return std::shared_ptr<HostPool>(new HostPool); }
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // 64-byte aligned, contents arbitrary; a user error when the system has no memory. One given-back
  // block of each size is kept.
  void* take(size_t bytes);
  void give_back(void* memory, size_t bytes);

 private:
  HostPool() = default;

  std::mutex mutex_;
  std::map<size_t, void*> spare_;  // by size
};

}  // namespace poptorch::run
