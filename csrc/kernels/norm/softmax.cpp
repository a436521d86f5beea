// Kernels of softmax and its logarithm.
#include <algorithm>

#include "kernels/along_dim.h"
#include "kernels/reduction/types.h"
#include "kernels/rows/rows.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

constexpr int64_t grain_elements = 4096;  // worth some 5 us
constexpr int64_t block = 256;            // columns of one unit of work

// Calls row(offset) for each row, or columns(offset, Columns) for each block of columns.
void for_each(const AlongDim& s, int threads, const auto& row, const auto& columns) {
  if (s.n == 0 || s.outer * s.inner == 0) return;
  if (s.inner == 1) {
    const int64_t grain = std::max<int64_t>(grain_elements / s.n, 1);
    return parallel_for(threads, s.outer, grain, [&](int64_t i) { row(i * s.n); });
  }
  const int64_t blocks = ceil_div(s.inner, block);
  const int64_t grain = std::max<int64_t>(grain_elements / (s.n * std::min(block, s.inner)), 1);
  parallel_for(threads, s.outer * blocks, grain, [&](int64_t i) {
    const int64_t start = i % blocks * block;
    columns(i / blocks * s.n * s.inner + start,
            Columns{s.n, s.inner, std::min(block, s.inner - start)});
  });
}

template <bool safe>
Prepared softmax(const Call& call) {
  return with_float_type(call, call.out().dtype, [&]<typename T>(T) -> Prepared {
    return {[split = AlongDim(call, call.in(0)), &loops = rows<T>()](const Args& args) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>();
      for_each(
          split, args.threads,
          [&](int64_t at) { loops.softmax(x + at, y + at, split.n, safe); },
          [&](int64_t at, Columns c) { loops.softmax_columns(x + at, y + at, c, safe); });
    }};
  });
}

Prepared log_softmax(const Call& call) {
  return with_float_type(call, call.out().dtype, [&]<typename T>(T) -> Prepared {
    return {[split = AlongDim(call, call.in(0)), &loops = rows<T>()](const Args& args) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>();
      for_each(
          split, args.threads, [&](int64_t at) { loops.log_softmax(x + at, y + at, split.n); },
          [&](int64_t at, Columns c) { loops.log_softmax_columns(x + at, y + at, c); });
    }};
  });
}

template <bool logarithm>
Prepared backward(const Call& call) {
  return with_float_type(call, call.out().dtype, [&]<typename T>(T) -> Prepared {
    const Rows<T>& loops = rows<T>();
    const auto row = logarithm ? loops.log_softmax_backward : loops.softmax_backward;
    const auto columns =
        logarithm ? loops.log_softmax_backward_columns : loops.softmax_backward_columns;
    return {[split = AlongDim(call, call.in(0)), row, columns](const Args& args) {
      const T *g = args.in<T>(0), *y = args.in<T>(1);
      T* dx = args.out<T>();
      for_each(
          split, args.threads, [&](int64_t at) { row(g + at, y + at, dx + at, split.n); },
          [&](int64_t at, Columns c) { columns(g + at, y + at, dx + at, c); });
    }};
  });
}

}  // namespace

KERNEL("_softmax", softmax<false>)
KERNEL("_safe_softmax", softmax<true>)
KERNEL("_log_softmax", log_softmax)
KERNEL("_softmax_backward_data", backward<false>)
KERNEL("_log_softmax_backward_data", backward<true>)

}  // namespace poptorch::kernels
