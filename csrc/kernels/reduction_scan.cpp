// cumsum, cumprod: running results along one dimension, in f64 (i64 for integers) as torch has
// them.
#include <algorithm>

#include "kernels/reduction_types.h"
#include "kernels/shape_copy.h"
#include "ops/kernel.h"
#include "ops/reduction.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::Type;
using ops::Args;
using ops::Call;
using ops::Prepared;

constexpr int64_t block = 256;

struct Layout {
  int64_t outer = 1, n = 1, inner = 1;
};

// `count` running results side by side: entry i of step k at k * step + i * apart.
struct Strip {
  int64_t at, count, apart, steps, step;
};

template <typename In, typename Out, bool product>
void scan_strip(const In* x, Out* out, const Strip& strip) {
  using Total = std::conditional_t<std::is_floating_point_v<Out>, double, int64_t>;
  Total totals[block];
  std::fill_n(totals, strip.count, Total{product ? 1 : 0});
  for (int64_t k = 0; k < strip.steps; ++k) {
    const In* from = x + strip.at + k * strip.step;
    Out* to = out + strip.at + k * strip.step;
    for (int64_t i = 0; i < strip.count; ++i) {
      const auto entry = static_cast<Total>(from[i * strip.apart]);
      totals[i] = product ? totals[i] * entry : totals[i] + entry;
      to[i * strip.apart] = static_cast<Out>(totals[i]);
    }
  }
}

// Along the last dimension several rows go together: the processor then overlaps their additions.
template <typename In, typename Out, bool product>
void scan(const In* x, Out* out, const Layout& layout, int threads) {
  const bool last = layout.inner == 1;
  const int64_t length = last ? layout.outer : layout.inner, most = last ? 4 : block;
  const int64_t width = std::clamp<int64_t>(length, 1, most), strips = (length + width - 1) / width;
  const int64_t units = last ? strips : layout.outer * strips;
  const int64_t grain = std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(1, layout.n * width));
  parallel_for(threads, units, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t start = unit % strips * width, count = std::min(width, length - start);
      const int64_t at = unit / strips * layout.n * layout.inner;
      scan_strip<In, Out, product>(x, out,
                                   last ? Strip{start * layout.n, count, layout.n, layout.n, 1}
                                        : Strip{at + start, count, 1, layout.n, layout.inner});
    }
  });
}

template <typename In, typename Out, bool product>
Prepared prepare_scan(const Call& call) {
  const Type& x = call.in(0);
  const int64_t dim = ops::single_dim({call.op}, x);
  Layout layout;
  for (int64_t d = 0; d < x.rank(); ++d) {
    (d < dim ? layout.outer : d == dim ? layout.n : layout.inner) *= x.sizes[d];
  }
  const CopyPlan whole(x.sizes, ir::contiguous_strides(x.sizes), x.actual_strides(), sizeof(In));
  const bool copied = !x.is_contiguous();
  const auto run = [=](const Args& args) {
    if (copied) whole.run(args.scratch, args.inputs[0], args.threads);
    const In* from = copied ? reinterpret_cast<const In*>(args.scratch) : args.in<In>(0);
    scan<In, Out, product>(from, args.out<Out>(0), layout, args.threads);
  };
  return {run, copied ? static_cast<size_t>(x.numel()) * sizeof(In) : 0};
}

template <bool product>
Prepared running(const Call& call) {
  return with_type(call.in(0).dtype, [&]<typename In>(In) {
    switch (call.out().dtype) {
      case ir::DType::f32: return prepare_scan<In, float, product>(call);
      case ir::DType::f64: return prepare_scan<In, double, product>(call);
      case ir::DType::i64: return prepare_scan<In, int64_t, product>(call);
      default: break;
    }
    USER_CHECK(call.out().dtype == ir::DType::i32, "[", call.op.name, "] cannot make a result of ",
               name_of(call.out().dtype), ". Ask for a float dtype, i32 or i64 and cast it.");
    return prepare_scan<In, int32_t, product>(call);
  });
}

KERNEL("cumsum", running<false>)
KERNEL("cumprod", running<true>)

}  // namespace

}  // namespace poptorch::kernels
