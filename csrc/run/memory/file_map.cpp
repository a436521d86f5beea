#include "run/memory/file_map.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>

namespace poptorch::run {

namespace {

struct Maps {
  std::mutex mutex;
  std::map<const std::byte*, std::weak_ptr<const FileMap>> by_begin;

  // Never destroyed: torch may free tensors after all static objects are gone.
  static Maps& get() {
    static Maps* instance = make();
    return *instance;
  }

 private:
  static Maps* make() {
    auto* instance = new Maps;
    pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                   [] { get().mutex.unlock(); });
    return instance;
  }
};

std::byte* map(int file, size_t bytes, int protection) {
  void* start = mmap(nullptr, bytes, protection, MAP_PRIVATE, file, 0);
  return start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
}

}  // namespace

std::shared_ptr<FileMap> FileMap::of(int file) {
  struct stat status = {};
  if (fstat(file, &status) != 0) return nullptr;
  const auto bytes = static_cast<size_t>(status.st_size);
  std::byte* host = map(file, bytes, PROT_READ | PROT_WRITE);
  if (host == nullptr) return nullptr;
  std::byte* device = map(file, bytes, PROT_READ);
  if (device == nullptr) {
    const int reason = errno;
    munmap(host, bytes);
    errno = reason;
    return nullptr;
  }
  std::shared_ptr<FileMap> made(new FileMap({host, host + bytes}, device));
  Maps& maps = Maps::get();
  const std::scoped_lock lock(maps.mutex);
  maps.by_begin[host] = made;
  return made;
}

std::shared_ptr<const FileMap> FileMap::find(Range host) {
  Maps& maps = Maps::get();
  std::shared_ptr<const FileMap> found;  // destroyed after the lock: its end takes the lock
  const std::scoped_lock lock(maps.mutex);
  auto at = maps.by_begin.upper_bound(host.begin);
  if (at == maps.by_begin.begin()) return nullptr;
  found = std::prev(at)->second.lock();
  return found != nullptr && host.end <= found->host_.end ? found : nullptr;
}

const std::byte* FileMap::for_device(Range host) const {
  const std::byte* device = device_ + (host.begin - host_.begin);
  const Range inner = host.inner_pages();
  // The first and the last page may have bytes of others, who wrote to them.
  const bool is_same = std::equal(host.begin, inner.begin, device) &&
                       std::equal(inner.end, host.end, device + (inner.end - host.begin));
  return is_same && !has_own_page(inner) ? device : nullptr;
}

FileMap::~FileMap() {
  Maps& maps = Maps::get();
  {
    const std::scoped_lock lock(maps.mutex);
    maps.by_begin.erase(host_.begin);
  }
  munmap(host_.begin, host_.bytes());
  munmap(device_, host_.bytes());
}

}  // namespace poptorch::run
