// Makes the process's allocations fail on demand. Preloaded into a child process by
// test_out_of_memory.py, which calls `fail_from` through ctypes.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_ulong least;  // bytes that are refused; 0: none are
static atomic_long refused;
static pthread_t spared;  // the thread that is given memory all the same
static int has_spared;

void fail_from(unsigned long bytes, int spares_caller) {
  spared = pthread_self();
  has_spared = spares_caller;
  least = bytes;
}
long refusals(void) { return refused; }

static int is_refused(size_t bytes) {
  if (least == 0 || bytes < least) return 0;
  if (has_spared && pthread_equal(pthread_self(), spared)) return 0;
  atomic_fetch_add(&refused, 1);
  return 1;
}

void* malloc(size_t bytes) { return is_refused(bytes) ? NULL : __libc_malloc(bytes); }

void* calloc(size_t n, size_t bytes) {
  return is_refused(n * bytes) ? NULL : __libc_calloc(n, bytes);
}

void* realloc(void* old, size_t bytes) {
  return is_refused(bytes) ? NULL : __libc_realloc(old, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  return is_refused(bytes) ? NULL : __libc_memalign(alignment, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** result, size_t alignment, size_t bytes) {
  void* memory = memalign(alignment, bytes);
  if (memory == NULL) return 12;
  *result = memory;
  return 0;
}
