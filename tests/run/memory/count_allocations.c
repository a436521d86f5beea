// Counts the process's allocations above 4 KiB and above 8 KiB. Preloaded into a child process by
// test_steady_state.py, which reads the count through ctypes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long large_count;
static atomic_long larger_count;

static void count(size_t bytes) {
  if (bytes > 4096) atomic_fetch_add(&large_count, 1);
  if (bytes > 8192) atomic_fetch_add(&larger_count, 1);
}

long large_allocations(void) { return large_count; }
long larger_allocations(void) { return larger_count; }

void* malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}

void* calloc(size_t n, size_t bytes) {
  count(n * bytes);
  return __libc_calloc(n, bytes);
}

void* realloc(void* old, size_t bytes) {
  count(bytes);
  return __libc_realloc(old, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** result, size_t alignment, size_t bytes) {
  *result = memalign(alignment, bytes);
  return *result == NULL ? 12 : 0;
}
