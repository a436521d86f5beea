// cumsum, cumprod: running results along one dimension, in f64 (i64 for integers) as torch has
// them.
#include <algorithm>

#include "kernels/along_dim.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/loops.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/error.h"
#include "support/memory/align.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::Type;

constexpr int64_t block = 256;

// `count` running results side by side: entry i of step k at k * step + i * apart.
struct Running {
  int64_t at, count, apart, steps, step;
};

template <typename T, bool product>
void scan_side_by_side(const T* x, T* out, const Running& s) {
  using Total = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  Total totals[block];
  std::fill_n(totals, s.count, Total{product ? 1 : 0});
  for (int64_t k = 0; k < s.steps; ++k) {
    const T* from = x + s.at + k * s.step;
    T* to = out + s.at + k * s.step;
    for (int64_t i = 0; i < s.count; ++i) {
      const auto entry = static_cast<Total>(from[i * s.apart]);
      totals[i] = product ? totals[i] * entry : totals[i] + entry;
      to[i * s.apart] = static_cast<T>(totals[i]);
    }
  }
}

// Rows that go together along the last dimension: the processor then overlaps their additions.
constexpr int64_t rows_at_once = 8;

template <typename T, bool product>
void scan_rows(const T* x, T* out, int64_t n) {
  using Total = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  Total totals[rows_at_once];
  std::fill_n(totals, rows_at_once, Total{product ? 1 : 0});
  for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 8
    for (int64_t row = 0; row < rows_at_once; ++row) {
      const auto entry = static_cast<Total>(x[row * n + k]);
      totals[row] = product ? totals[row] * entry : totals[row] + entry;
      out[row * n + k] = static_cast<T>(totals[row]);
    }
  }
}

template <typename T, bool product>
void scan(const T* x, T* out, const AlongDim& layout, int threads) {
  const bool last = layout.inner == 1;
  const int64_t length = last ? layout.outer : layout.inner;
  const int64_t most = last ? rows_at_once : block;
  const int64_t width = std::clamp<int64_t>(length, 1, most), blocks = ceil_div(length, width);
  const int64_t units = last ? blocks : layout.outer * blocks;
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(1, layout.n * width));
  parallel_for(threads, units, grain, [&](int64_t unit) {
    const int64_t start = unit % blocks * width, count = std::min(width, length - start);
    const int64_t apart = layout.n * (MUTANT(scan_outer_stride) ? 1 : layout.inner);
    const int64_t at = unit / blocks * apart;
    if (last && count == rows_at_once) {
      scan_rows<T, product>(x + start * layout.n, out + start * layout.n, layout.n);
      return;
    }
    scan_side_by_side<T, product>(
        x, out, last ? Running{start * layout.n, count, layout.n, layout.n, 1}
                     : Running{at + start, count, 1, layout.n, layout.inner});
  });
}

// Sums along rows of f32: each row is vectorized.
void scan_sums(const float* x, float* out, const AlongDim& layout, const simd::ReduceLoops& loops,
               int threads) {
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, layout.n));
  parallel_for(threads, layout.outer, grain, [&](int64_t row) {
    loops.running_sum(x + row * layout.n, out + row * layout.n, layout.n);
  });
}

// Operands of other strides are copied first, those of another type cast to that of the result.
struct Operand {
  int64_t n, from_bytes, to_bytes;  // how many, and the bytes of one before and after the cast
  int64_t copy_bytes, cast_bytes;   // of all; 0: as it is
  CopyPlan whole;
  Function cast;

  Operand(const Type& x, const Type& out)
      : n(x.numel()),
        from_bytes(ir::item_bytes(x.dtype)),
        to_bytes(ir::item_bytes(out.dtype)),
        copy_bytes(x.is_contiguous() ? 0 : align_up(n * from_bytes)),
        cast_bytes(x.dtype == out.dtype ? 0 : n * to_bytes),
        whole(x.sizes, ir::contiguous_strides(x.sizes), x.actual_strides(), from_bytes),
        cast(cast_function(x.dtype, out.dtype)) {}

  const void* read(const Args& args) const {
    const void* x = args.inputs[0];
    if (copy_bytes != 0) {
      whole.run(args.scratch, x, args.threads);
      x = args.scratch;
    }
    if (cast_bytes == 0) return x;
    const auto* from = static_cast<const std::byte*>(x);
    std::byte* const to = args.scratch + copy_bytes;
    parallel_for(args.threads, n, int64_t{1} << 14, [&](int64_t begin, int64_t end) {
      cast.run({to + begin * to_bytes, {from + begin * from_bytes}, {1}, end - begin,
                cast.params.data()});
    });
    return to;
  }
};

template <typename T, bool product>
Prepared prepare_scan(const Call& call) {
  constexpr bool is_float_sum = std::is_same_v<T, float> && !product;
  const AlongDim layout(call, call.in(0));
  const Operand operand(call.in(0), call.out());
  const auto run = [=, loops = &simd::reduce_loops()](const Args& args) {
    const T* x = static_cast<const T*>(operand.read(args));
    if constexpr (is_float_sum) {
      if (layout.inner == 1) return scan_sums(x, args.out<T>(0), layout, *loops, args.threads);
    }
    scan<T, product>(x, args.out<T>(0), layout, args.threads);
  };
  return {run, static_cast<size_t>(operand.copy_bytes + operand.cast_bytes)};
}

template <bool product>
Prepared running(const Call& call) {
  const ir::DType dtype = call.out().dtype;
  switch (dtype) {
    case ir::DType::f32: return prepare_scan<float, product>(call);
    case ir::DType::f64: return prepare_scan<double, product>(call);
    case ir::DType::i64: return prepare_scan<int64_t, product>(call);
    default: break;
  }
  USER_CHECK(dtype == ir::DType::i32, "[", call.op.name, "] cannot make a result of ",
             name_of(dtype), ". Ask for a float dtype, i32 or i64 and cast it.");
  return prepare_scan<int32_t, product>(call);
}

KERNEL("cumsum", running<false>)
KERNEL("cumprod", running<true>)

}  // namespace

}  // namespace poptorch::kernels
