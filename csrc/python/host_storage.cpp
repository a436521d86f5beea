#include "python/host_storage.h"

#include <c10/core/CPUAllocator.h>

#include <memory>

#include "run/shared_pages.h"

namespace poptorch::python {

namespace {

// Stands between a storage and its allocator.
struct Guard {
  c10::DataPtr memory;
  size_t bytes = 0;
};

void release(void* context) {
  const std::unique_ptr<Guard> guard(static_cast<Guard*>(context));
  auto* begin = static_cast<std::byte*>(guard->memory.get());
  // Memory that the system does not make plain again is better lost than handed to others.
  if (!run::unshare({begin, begin + guard->bytes})) guard->memory.release_context();
}

}  // namespace

bool allow_sharing(c10::StorageImpl& storage) {
  const c10::DataPtr& memory = storage.data_ptr();
  if (memory.get_deleter() == &release) return true;
  if (memory.get_deleter() != c10::GetDefaultCPUAllocator()->raw_deleter()) return false;
  auto guard = std::make_unique<Guard>();
  guard->bytes = storage.nbytes();
  void* data = memory.get();
  const c10::Device device = memory.device();
  Guard* context = guard.release();
  context->memory = storage.set_data_ptr({data, context, &release, device});
  return true;
}

void allow_resizing(c10::StorageImpl& storage) {
  storage.set_allocator(c10::GetDefaultCPUAllocator());
  storage.set_resizable(true);
}

}  // namespace poptorch::python
