#include "run/memory/page_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace poptorch::run {

namespace {

// Bits of an entry of /proc/self/pagemap.
constexpr uint64_t present_bit = uint64_t{1} << 63;
constexpr uint64_t swapped_bit = uint64_t{1} << 62;
constexpr uint64_t file_bit = uint64_t{1} << 61;

uintptr_t round_down(const std::byte* address) {
  return reinterpret_cast<uintptr_t>(address) & ~(page_bytes() - 1);
}

uintptr_t round_up(const std::byte* address) { return round_down(address + page_bytes() - 1); }

Range to_range(uintptr_t begin, uintptr_t end) {
  return {reinterpret_cast<std::byte*>(begin), reinterpret_cast<std::byte*>(std::max(begin, end))};
}

bool has_page(Range pages, const auto& matches) {
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  std::array<uint64_t, 1024> entries{};
  size_t page = reinterpret_cast<uintptr_t>(pages.begin) / page_bytes();
  size_t left = pages.bytes() / page_bytes();
  bool is_found = false;
  while (left > 0 && !is_found) {
    const size_t count = std::min(left, entries.size());
    const size_t bytes = count * sizeof(uint64_t);
    const auto offset = static_cast<off_t>(page * sizeof(uint64_t));
    const bool is_read = pread(file, entries.data(), bytes, offset) == static_cast<ssize_t>(bytes);
    is_found = !is_read || std::any_of(entries.begin(), entries.begin() + count, matches);
    page += count;
    left -= count;
  }
  close(file);
  return is_found;
}

}  // namespace

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Range Range::inner_pages() const { return to_range(round_up(begin), round_down(end)); }

Range Range::outer_pages() const { return to_range(round_down(begin), round_up(end)); }

bool has_own_page(Range pages) {
  return has_page(pages, [](uint64_t entry) {
    return (entry & (present_bit | swapped_bit)) != 0 && (entry & file_bit) == 0;
  });
}

bool has_file_page(Range pages) {
  return has_page(pages, [](uint64_t entry) { return (entry & file_bit) != 0; });
}

}  // namespace poptorch::run
