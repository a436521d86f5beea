// scatter_reduce: sums, products, means and extremes of what an index sends to one place.
#include <limits>

#include "kernels/index/lines.h"
#include "kernels/reduction/types.h"
#include "ops/families/indexing.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

using ops::ScatterReduce;

// What a place holds before anything is sent to it.
template <ScatterReduce reduce, typename T>
T identity() {
  using Limits = std::numeric_limits<T>;
  constexpr bool has_infinity = Limits::has_infinity;
  if (reduce == ScatterReduce::prod) return T{1};
  if (reduce == ScatterReduce::amax) return has_infinity ? -Limits::infinity() : Limits::min();
  if (reduce == ScatterReduce::amin) return has_infinity ? Limits::infinity() : Limits::max();
  return T{0};
}

// NaN stays, and takes the place of numbers.
template <ScatterReduce reduce, typename T>
T combine(T to, T from) {
  switch (reduce) {
    case ScatterReduce::prod: return static_cast<T>(to * from);
    case ScatterReduce::amax: return from > to || from != from ? from : to;
    case ScatterReduce::amin: return from < to || from != from ? from : to;
    default: return static_cast<T>(to + from);
  }
}

// As torch does: whole numbers are divided downwards, by a count of their own type, which may wrap
// around and is 1 where it is 0.
template <typename T>
T divided(T sum, int32_t count) {
  const T by = static_cast<T>(count) == T{0} ? T{1} : static_cast<T>(count);
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    const T quotient = static_cast<T>(sum / by);
    return static_cast<T>(quotient - (sum % by != 0 && (sum < 0) != (by < 0) ? 1 : 0));
  } else {
    return static_cast<T>(sum / by);
  }
}

template <typename T>
void divide_all(T* out, const int32_t* counts, int64_t n, int threads) {
  parallel_for(threads, n, index_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (counts[i] > 1) out[i] = divided(out[i], counts[i]);
    }
  });
}

template <ScatterReduce reduce, typename T>
Prepared prepare_typed(const Call& call) {
  constexpr bool is_mean = reduce == ScatterReduce::mean;
  const Lines lines(call, call.in(0), call.in(1), call.in(2));
  const int64_t n = call.in(0).numel(), bytes = call.in(0).bytes();
  const bool include_self = call.attrs().get_bool(ir::attr::include_self);
  const auto run = [=](const Args& args) {
    copy_unless_same(args, bytes);
    T* out = args.out<T>();
    const T* src = args.in<T>(2);
    auto* counts = reinterpret_cast<int32_t*>(args.scratch);
    if (is_mean) {
      const int32_t first = include_self ? 1 : 0;
      fill_items(counts, &first, sizeof first, n, args.threads);
    }
    if (!include_self) {
      scatter_lines("scatter_reduce", lines, args,
                           [=](int64_t to, int64_t) { out[to] = identity<reduce, T>(); });
    }
    scatter_lines("scatter_reduce", lines, args, [=](int64_t to, int64_t from) {
      out[to] = combine<reduce>(out[to], src[from]);
      if (is_mean) ++counts[to];
    });
    if (is_mean) divide_all(out, counts, n, args.threads);
  };
  return {run, is_mean ? static_cast<size_t>(n) * sizeof(int32_t) : 0};
}

template <ScatterReduce reduce>
Prepared prepare(const Call& call) {
  return with_type(call.in(0).dtype,
                   [&]<typename T>(T) { return prepare_typed<reduce, T>(call); });
}

Prepared scatter_reduce(const Call& call) {
  switch (ops::scatter_reduce_of({call.op})) {
    case ScatterReduce::sum: return prepare<ScatterReduce::sum>(call);
    case ScatterReduce::prod: return prepare<ScatterReduce::prod>(call);
    case ScatterReduce::mean: return prepare<ScatterReduce::mean>(call);
    case ScatterReduce::amax: return prepare<ScatterReduce::amax>(call);
    case ScatterReduce::amin: break;
  }
  return prepare<ScatterReduce::amin>(call);
}

KERNEL("scatter_reduce", scatter_reduce)

}  // namespace

}  // namespace poptorch::kernels
