// What csrc/python needs of torch's tensors. Its files torch_tensors.cpp and graph_call.cpp include
// torch's headers. They change with each release of torch, so these files are compiled for each.
#pragma once

#include <array>
#include <cstdint>

namespace poptorch::python {

// Whether the pages of a storage, given by its address, may be shared with a device
// (run/memory/shared_pages.h): its memory is of torch's own CPU allocator, not of numpy, a file or
// another process. If so, the storage from now on makes its pages plain memory before it frees
// them, whoever drops it and whenever.
bool allow_sharing(uintptr_t storage);

// Lets torch resize a storage whose memory is not from torch's allocator; its new memory is.
void allow_resizing(uintptr_t storage);

// A random state (seed of two words, replica, counter) with a seed from torch's own generator.
std::array<int32_t, 4> drawn_random_state();

}  // namespace poptorch::python
