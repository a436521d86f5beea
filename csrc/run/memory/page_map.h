// What the kernel says about the pages of this process's memory, and rounding to pages.
#pragma once

#include <cstddef>

namespace poptorch::run {

size_t page_bytes();

// Memory from `begin` up to `end`.
struct Range {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;

  size_t bytes() const { return static_cast<size_t>(end - begin); }
  // The pages that lie in it as a whole; empty where there is none.
  Range inner_pages() const;
  // The pages that it touches.
  Range outer_pages() const;
};

// Whether some page of whole pages holds bytes of its own (`own`: written by this process, swapped
// out or not), or those of a file or of shared memory (`file`). A page that was never touched is
// neither. True as well where the kernel does not say.
bool has_own_page(Range pages);
bool has_file_page(Range pages);

}  // namespace poptorch::run
