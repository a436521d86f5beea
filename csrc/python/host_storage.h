// Torch's storages whose memory shares pages with a device (run/shared_pages.h).
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstdint>

namespace poptorch::python {

// Whether the pages of a storage may be shared: its memory is of torch's own CPU allocator, not of
// numpy, a file or another process. If so, the storage from now on makes its pages plain memory
// before it frees them, whoever drops it and whenever.
bool allow_sharing(c10::StorageImpl& storage);

// The storage at an address that Python gives.
inline c10::StorageImpl& storage_at(uintptr_t address) {
  return *reinterpret_cast<c10::StorageImpl*>(address);
}

// Lets torch resize a storage whose memory is not from torch's allocator; its new memory is.
void allow_resizing(c10::StorageImpl& storage);

}  // namespace poptorch::python
