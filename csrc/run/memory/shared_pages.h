// One copy of a weight for the host and for the device.
//
//   host's tensor   [ edge | page | page | page | edge ]     an edge has its page with other data
//                          |      |      |
//   shared pages    [ copy | page | page | page | copy ]     the device reads these
//
// Bytes of a mapped file (run/memory/file_map.h) stay there: the device reads the file's pages.
//
// Other bytes move to pages of an anonymous file that the device maps. The host's memory becomes,
// at its old addresses, a private map of the same file: it reads the same bytes, and its first
// write to a page gives the host a page of its own (copy on write). The device never sees what is
// written after `share`.
//
// Ownership. The pages live as long as their SharedPages, and their bytes never change meanwhile.
// The host's memory remains its allocator's: `unshare` makes it plain memory again and must be
// called before it is freed. Either may end first:
//   - the device's end gives the host pages of its own before the file goes;
//   - the host's end leaves the file to the device.
// After a fork the child keeps the host's side, as with any memory. The device's side is not there.
//
// All functions are thread-safe. What must not happen at the same time is `share` and another
// thread's write to the same bytes: such a write may be lost.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "run/memory/page_map.h"

namespace poptorch::run {

class SharedPages {
 public:
  // The present bytes of `host`, which must be a FileMap's or ordinary memory of this process
  // (neither a file's nor shared), readable and writable. Memory that is shared already and was not
  // written since gives the same object again. Null where sharing is not possible: then nothing has
  // changed.
  static std::shared_ptr<const SharedPages> share(Range host);

  // Memory that is a read-only map of a file, and lives as long as `owner` or longer than this.
  // Nothing is copied: processes that map the same file have one copy of it.
  static std::shared_ptr<const SharedPages> of_file(Range bytes,
                                                    std::shared_ptr<const void> owner = {});

  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  // As far into its page as the host's tensor is. Behind the last byte lies a page of zeros, or
  // the rest of the file.
  const std::byte* data() const;

 private:
  friend struct PageRegistry;

  SharedPages() = default;
  bool create(Range host);
  bool fill(int file, std::byte* view) const;
  bool is_unchanged() const;

  std::shared_ptr<const void> file_;
  Range host_;
  std::byte* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  pid_t process_ = 0;
  bool has_children_ = false;  // forked processes whose host memory shows these pages
};

// Makes the whole pages within this memory plain ones, with arbitrary bytes: its owner is about to
// free it. False when the system refuses; then the memory must never be freed.
bool unshare(Range host) noexcept;

}  // namespace poptorch::run
