// argmax, argmin, max_dim, min_dim: extremes along one dimension with the position of the first
// one.
#include <algorithm>

#include "kernels/along_dim.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/loops.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;
using ir::Type;

template <typename T, bool largest>
bool better(T x, T best) {
  if (MUTANT(argmax_takes_last) && x == best) return true;
  return (largest ? x > best : x < best) || (x != x && best == best);
}

template <typename T>
struct Results {
  T* values;  // nullptr when only positions are results
  Positions positions;
  const simd::ReduceLoops* loops;

  void put(int64_t i, T value, int64_t position) const {
    if (values != nullptr) values[i] = value;
    positions.put(i, position);
  }
};

// First the value, by the vectorized loop, then where it stands: two fast passes instead of a slow
// one.
template <typename T, bool largest>
void along_run(const T* x, int64_t n, int64_t out, const Results<T>& results) {
  T best = x[0];
  int64_t at = 0;
  if constexpr (std::is_same_v<T, float>) {
    best = largest ? results.loops->largest(x, n) : results.loops->smallest(x, n);
    while (best == best ? x[at] != best : x[at] == x[at]) ++at;
  } else {
    for (int64_t i = 1; i < n; ++i) {
      if (better<T, largest>(x[i], best)) best = x[i], at = i;
    }
  }
  results.put(out, x[at], at);
}

constexpr int64_t block = 256;

// Columns side by side: `count` of them from x on.
template <typename T, bool largest>
void along_columns(const T* x, const AlongDim& layout, int64_t count, int64_t out,
                   const Results<T>& results) {
  T best[block];
  int32_t at[block];
  std::copy_n(x, count, best);
  std::fill_n(at, count, 0);
  for (int64_t row = 1; row < layout.n; ++row) {
    const T* from = x + row * layout.inner;
    for (int64_t i = 0; i < count; ++i) {
      const bool take = better<T, largest>(from[i], best[i]);
      best[i] = take ? from[i] : best[i];
      at[i] = take ? static_cast<int32_t>(row) : at[i];
    }
  }
  for (int64_t i = 0; i < count; ++i) results.put(out + i, best[i], at[i]);
}

template <typename T, bool largest>
void search(const T* x, const AlongDim& layout, const Results<T>& results, int threads) {
  constexpr int64_t grain_elements = 1 << 14;
  if (layout.inner == 1) {
    const int64_t grain = std::max<int64_t>(1, grain_elements / layout.n);
    parallel_for(threads, layout.outer, grain, [&](int64_t row) {
      along_run<T, largest>(x + row * layout.n, layout.n, row, results);
    });
    return;
  }
  const int64_t blocks = ceil_div(layout.inner, block);
  const int64_t width = std::min(block, layout.inner);
  const int64_t grain =
      std::max<int64_t>(1, grain_elements / std::max<int64_t>(1, layout.n * width));
  parallel_for(threads, layout.outer * blocks, grain, [&](int64_t unit) {
    const int64_t outer = unit / blocks, start = unit % blocks * block;
    along_columns<T, largest>(x + outer * layout.n * layout.inner + start, layout,
                              std::min(block, layout.inner - start), outer * layout.inner + start,
                              results);
  });
}

template <bool largest, bool with_values>
Prepared arg_extreme(const Call& call) {
  const Type& x = call.in(0);
  const AlongDim layout(call, x);
  const CopyPlan whole(x.sizes, ir::contiguous_strides(x.sizes), x.actual_strides(),
                       ir::item_bytes(x.dtype));
  const bool copied = !x.is_contiguous();
  const ir::DType position_type = call.out(with_values ? 1 : 0).dtype;
  const auto* loops = &simd::reduce_loops();
  return with_number_type(x.dtype, [&]<typename T>(T) {
    const auto run = [=](const Args& args) {
      if (copied) whole.run(args.scratch, args.inputs[0], args.threads);
      const T* from = copied ? reinterpret_cast<const T*>(args.scratch) : args.in<T>(0);
      const Results<T> results{with_values ? args.out<T>(0) : nullptr,
                               {args.outputs[with_values ? 1 : 0], position_type}, loops};
      search<T, largest>(from, layout, results, args.threads);
    };
    return Prepared{run, copied ? static_cast<size_t>(x.numel() * ir::item_bytes(x.dtype)) : 0};
  });
}

KERNEL("argmax", arg_extreme<true, false>)
KERNEL("argmin", arg_extreme<false, false>)
KERNEL("max_dim", arg_extreme<true, true>)
KERNEL("min_dim", arg_extreme<false, true>)

}  // namespace

}  // namespace poptorch::kernels
