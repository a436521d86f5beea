#include "run/memory/shared_pages.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "run/memory/file_map.h"

namespace poptorch::run {

namespace {

// Bytes that are copied before the host's memory of them is replaced: as little as possible exists
// twice.
constexpr size_t chunk_bytes = size_t{1} << 20;

#ifdef MADV_POPULATE_READ
constexpr int populate_advice = MADV_POPULATE_READ;
#else
constexpr int populate_advice = 22;  // of Linux 5.14; older headers do not name it
#endif

bool overlaps(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

bool write_all(int file, Range bytes, size_t offset) {
  while (bytes.begin < bytes.end) {
    const ssize_t count = pwrite(file, bytes.begin, bytes.bytes(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.begin += count;
    offset += static_cast<size_t>(count);
  }
  return true;
}

// A file without a name, of so many zeros; -1: the system refuses. A size beyond the process's
// limit would raise a signal.
int make_file(size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return -1;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) return -1;
  const int file = memfd_create("poptorch_weights", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    close(file);
    return -1;
  }
  return file;
}

std::byte* map(int file, size_t bytes, size_t offset, int protection, int flags) {
  void* start = mmap(nullptr, bytes, protection, flags, file, static_cast<off_t>(offset));
  return start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
}

// Writes each page's first byte back to it, whatever other threads write there.
void make_own(Range pages) {
  for (std::byte* page = pages.begin; page < pages.end; page += page_bytes()) {
    const std::atomic_ref<unsigned char> byte(*reinterpret_cast<unsigned char*>(page));
    unsigned char value = byte.load(std::memory_order_relaxed);
    while (!byte.compare_exchange_weak(value, value, std::memory_order_relaxed)) {
    }
  }
}

}  // namespace

// Host memory that shows shared pages. An entry goes when its memory is unshared or shared again.
struct PageRegistry {
  struct Entry {
    Range host;
    SharedPages* pages;
    std::weak_ptr<SharedPages> reference;
  };

  std::mutex mutex;
  std::map<std::byte*, Entry> entries;  // by begin; they do not overlap

  // Never destroyed: torch may free memory after all static objects are gone.
  static PageRegistry& get() {
    static PageRegistry* instance = make();
    return *instance;
  }

  std::shared_ptr<SharedPages> find(Range host) const {
    const auto found = entries.find(host.begin);
    if (found == entries.end() || found->second.host.end != host.end) return nullptr;
    return found->second.reference.lock();
  }

  void add(const std::shared_ptr<SharedPages>& pages) {
    erase(pages->host_);
    entries[pages->host_.begin] = {pages->host_, pages.get(), pages};
  }

  void erase(Range host) {
    auto at = entries.lower_bound(host.begin);
    if (at != entries.begin()) --at;
    while (at != entries.end() && at->first < host.end) {
      at = overlaps(at->second.host, host) ? entries.erase(at) : std::next(at);
    }
  }

  bool erase(const SharedPages* pages) {
    const auto found = entries.find(pages->host_.begin);
    if (found == entries.end() || found->second.pages != pages) return false;
    entries.erase(found);
    return true;
  }

 private:
  static PageRegistry* make() {
    auto* instance = new PageRegistry;
    pthread_atfork([] { get().mutex.lock(); },
                   [] {
                     for (auto& [begin, entry] : get().entries) entry.pages->has_children_ = true;
                     get().mutex.unlock();
                   },
                   [] {
                     get().entries.clear();
                     get().mutex.unlock();
                   });
    return instance;
  }
};

std::shared_ptr<const SharedPages> SharedPages::share(Range host) {
  if (host.inner_pages().bytes() == 0) return nullptr;
  if (const std::shared_ptr<const FileMap> file = FileMap::find(host)) {
    auto* begin = const_cast<std::byte*>(file->for_device(host));
    return begin == nullptr ? nullptr : of_file({begin, begin + host.bytes()}, file);
  }
  PageRegistry& registry = PageRegistry::get();
  std::shared_ptr<SharedPages> known;  // destroyed after the lock: its end takes the lock
  std::shared_ptr<SharedPages> made;
  const std::scoped_lock lock(registry.mutex);
  known = registry.find(host);
  if (known != nullptr && known->is_unchanged()) return known;
  if (known == nullptr && has_file_page(host.inner_pages())) return nullptr;
  made.reset(new SharedPages);
  if (!made->create(host)) return nullptr;
  registry.add(made);
  return made;
}

std::shared_ptr<const SharedPages> SharedPages::of_file(Range bytes,
                                                        std::shared_ptr<const void> owner) {
  std::shared_ptr<SharedPages> made(new SharedPages);  // of no process: nothing to give back
  made->file_ = std::move(owner);
  made->host_ = bytes;
  made->mapping_ = bytes.outer_pages().begin;
  return made;
}

// The host's view of the file is made before anything changes, so that what may fail for lack of
// memory fails in time.
bool SharedPages::create(Range host) {
  const Range outer = host.outer_pages(), inner = host.inner_pages();
  const size_t bytes = outer.bytes() + page_bytes();
  const int file = make_file(bytes);
  if (file < 0) return false;
  const auto offset = static_cast<size_t>(inner.begin - outer.begin);
  std::byte* device = map(file, bytes, 0, PROT_READ, MAP_SHARED);
  std::byte* view = map(file, inner.bytes(), offset, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  host_ = host;
  process_ = getpid();
  const bool is_filled = device != nullptr && view != nullptr && fill(file, view);
  close(file);
  if (!is_filled) {
    if (device != nullptr) munmap(device, bytes);
    return false;
  }
  mapping_ = device;
  mapped_bytes_ = bytes;
  madvise(device, bytes, MADV_DONTFORK);
  madvise(device, bytes, populate_advice);
  return true;
}

// Copies chunk by chunk, and moves the same chunk of `view` over the host's memory; what it does
// not move of the view, it unmaps. Where the system refuses, the host keeps the memory that it has:
// either shows the right bytes.
bool SharedPages::fill(int file, std::byte* view) const {
  const Range outer = host_.outer_pages(), inner = host_.inner_pages();
  const auto offset = [&](const std::byte* at) { return static_cast<size_t>(at - outer.begin); };
  bool is_written = write_all(file, {host_.begin, inner.begin}, offset(host_.begin)) &&
                    write_all(file, {inner.end, host_.end}, offset(inner.end));
  bool is_moving = true;
  for (std::byte* at = inner.begin; at < inner.end; at += chunk_bytes) {
    const Range chunk{at, at + std::min(chunk_bytes, static_cast<size_t>(inner.end - at))};
    std::byte* from = view + (at - inner.begin);
    is_written = is_written && write_all(file, chunk, offset(at));
    is_moving = is_moving && is_written &&
                mremap(from, chunk.bytes(), chunk.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, at) !=
                    MAP_FAILED;
    if (!is_moving) munmap(from, chunk.bytes());
  }
  return is_written;
}

bool SharedPages::is_unchanged() const {
  const Range inner = host_.inner_pages();
  const std::byte* tail = data() + (inner.end - host_.begin);
  return std::equal(host_.begin, inner.begin, data()) && std::equal(inner.end, host_.end, tail) &&
         !has_own_page(inner);
}

const std::byte* SharedPages::data() const {
  return mapping_ + (host_.begin - host_.outer_pages().begin);
}

SharedPages::~SharedPages() {
  // A forked child does not have the mapping; a different mapping may be in its place.
  if (mapping_ == nullptr || getpid() != process_) return;
  PageRegistry& registry = PageRegistry::get();
  const std::scoped_lock lock(registry.mutex);
  if (registry.erase(this)) {
    make_own(host_.inner_pages());
    // The host's map keeps the file, so its pages are taken out of it.
    const bool is_seen = has_children_ || has_file_page(host_.inner_pages());
    if (!is_seen && mprotect(mapping_, mapped_bytes_, PROT_READ | PROT_WRITE) == 0) {
      madvise(mapping_, mapped_bytes_, MADV_REMOVE);
    }
  }
  munmap(mapping_, mapped_bytes_);
}

bool unshare(Range host) noexcept {
  PageRegistry& registry = PageRegistry::get();
  const std::scoped_lock lock(registry.mutex);
  registry.erase(host);
  const Range inner = host.inner_pages();
  if (inner.bytes() == 0) return true;
  void* start = mmap(inner.begin, inner.bytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return start != MAP_FAILED;
}

}  // namespace poptorch::run
