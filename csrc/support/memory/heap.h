// The C library keeps freed memory for the next allocation. After a burst of large ones, such as
// the dry runs of kernels, that is memory which the process holds for nothing.
#pragma once

#include <malloc.h>

namespace poptorch {

// Gives freed memory back to the system. Takes milliseconds.
inline void give_back_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace poptorch
