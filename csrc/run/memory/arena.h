// The memory of one replica: one mapping, huge pages where the system has them.
// A fork of the process does not get the mapping, and may have other memory in its place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace poptorch::run {

class Arena {
 public:
  explicit Arena(int64_t bytes);  // zeroed; a user error when the system has no more memory
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Makes the pages of [begin, end) exist: a first run should not be the one to pay for it.
  void populate(int64_t begin, int64_t end);
  // Small pages for [begin, end): only a few parts of this memory are used.
  void use_small_pages(int64_t begin, int64_t end);
  // Gives the whole pages of [begin, end) back; they read as zeros.
  void release(int64_t begin, int64_t end);

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int process_;  // that made the mapping; its forks do not have it
};

}  // namespace poptorch::run
