// The memory of one replica: one mapping, huge pages where the system has them, touched when made.
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

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace poptorch::run
