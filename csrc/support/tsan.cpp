// Only of the build of `make tsan`: shows ThreadSanitizer what a parallel region orders. OpenMP's
// library is not built with it, so it would take each region for a race. The linker sends all calls
// that begin a region here (setup.py).
#if defined(__SANITIZE_THREAD__)

extern "C" {

void __tsan_acquire(void* address);
void __tsan_release(void* address);

using RegionBody = void (*)(void*);
void __real_GOMP_parallel(RegionBody body, void* data, unsigned threads, unsigned flags);
void __wrap_GOMP_parallel(RegionBody body, void* data, unsigned threads, unsigned flags);

}  // extern "C"

namespace {

struct Region {
  RegionBody body;
  void* data;
  char begin, end;  // their addresses stand for what is ordered
};

void run_part(void* given) {
  auto& region = *static_cast<Region*>(given);
  __tsan_acquire(&region.begin);
  region.body(region.data);
  __tsan_release(&region.end);
}

}  // namespace

void __wrap_GOMP_parallel(RegionBody body, void* data, unsigned threads, unsigned flags) {
  Region region{body, data, 0, 0};
  __tsan_release(&region.begin);
  __real_GOMP_parallel(&run_part, &region, threads, flags);
  __tsan_acquire(&region.end);
}

#endif
