// Work on several threads of the process's one OpenMP pool (the pool that torch uses too).
#pragma once

#include <concepts>
#include <cstdint>

namespace poptorch {

// Refers to fn(begin, end), which must outlive it. By address, and the region in one place: each of
// a hundred kernels would compile a region of its own, and its loops twice.
class PartFunction {
 public:
  template <std::invocable<int64_t, int64_t> Fn>
  explicit PartFunction(const Fn& fn) : fn_(&fn), call_(&call<Fn>) {}

  void operator()(int64_t begin, int64_t end) const { call_(fn_, begin, end); }

 private:
  template <typename Fn>
  static void call(const void* fn, int64_t begin, int64_t end) {
    (*static_cast<const Fn*>(fn))(begin, end);
  }

  const void* fn_;
  void (*call_)(const void*, int64_t, int64_t);
};

// Calls fn(begin, end) on disjoint parts of [0, n), at most `threads` at once. Parts are multiples
// of `grain` (the last one excepted), so pass a grain worth some 5 us of work: fewer than two
// grains run inline, and a call from within a parallel region does too. How [0, n) is cut depends
// on `threads`: a caller whose result depends on the cut (a sum, say) must cut by itself into a
// fixed number of parts and let this function distribute those. All threads compute in the caller's
// floating-point mode and under its settings. What a part throws, the caller gets when all parts
// have ended: of several the first one.
void parallel_for(int threads, int64_t n, int64_t grain, PartFunction fn);

void parallel_for(int threads, int64_t n, int64_t grain,
                  const std::invocable<int64_t, int64_t> auto& fn) {
  parallel_for(threads, n, grain, PartFunction(fn));
}

// The same with fn(i) for each i of a part.
void parallel_for(int threads, int64_t n, int64_t grain, const std::invocable<int64_t> auto& fn) {
  parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  });
}

// Cuts [0, n) into `parts` runs, about as long as each other, and calls fn(part, begin, end) for
// each: where a part has memory of its own, or results depend on how many there are.
void parallel_parts(int threads, int64_t parts, int64_t n, const auto& fn) {
  parallel_for(threads, parts, 1,
               [&](int64_t part) { fn(part, n * part / parts, n * (part + 1) / parts); });
}

// For libraries that start parallel regions of their own: while it exists, the pool's threads flush
// denormals if the calling thread does.
class FlushingPool {
 public:
  explicit FlushingPool(int threads);
  ~FlushingPool();
  FlushingPool(const FlushingPool&) = delete;
  FlushingPool& operator=(const FlushingPool&) = delete;

 private:
  int threads_;
};

}  // namespace poptorch
