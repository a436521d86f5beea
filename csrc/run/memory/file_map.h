// A file in the memory of this process, for the host and for devices.
//
//   host's view     private and writable: a page that is written to becomes the process's own
//   device's view   read-only, of the same pages; writes of the host do not reach it
//
// Nothing is copied, and processes that map the same file have one copy of it. The file must not be
// changed in place meanwhile; one that is replaced or removed stays as it was for those who map it.
#pragma once

#include <memory>

#include "run/memory/page_map.h"

namespace poptorch::run {

class FileMap {
 public:
  // All of an open file. Null where the system refuses, with the reason in `errno`.
  static std::shared_ptr<FileMap> of(int file);
  // The map whose host's view has these bytes; null: they lie elsewhere.
  static std::shared_ptr<const FileMap> find(Range host);

  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  Range host() const { return host_; }
  // Where devices read what the host has here; null: the host has written to it since.
  const std::byte* for_device(Range host) const;

 private:
  FileMap(Range host, std::byte* device) : host_(host), device_(device) {}

  Range host_;
  std::byte* device_;
};

}  // namespace poptorch::run
