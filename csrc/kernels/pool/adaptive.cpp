// adaptive_max_pool2d and its gradient. First the largest of the rows under a row of windows, for
// all columns at once, then the largest column of each window.
#include <algorithm>

#include "kernels/pool/lines.h"
#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"

namespace poptorch::kernels {

namespace {

// The windows that share an axis out: those of neighbours may overlap by one entry.
struct Windows {
  int64_t size, out;

  int64_t begin(int64_t i) const { return i * size / out; }
  int64_t end(int64_t i) const { return ceil_div((i + 1) * size, out); }
};

template <typename T, typename Index>
struct AdaptiveMax {
  Windows rows, columns;
  Loops<T, Index> loops;

  int64_t best_bytes() const { return align_up(columns.size * static_cast<int64_t>(sizeof(T))); }
  int64_t scratch_bytes() const {
    return best_bytes() + columns.size * static_cast<int64_t>(sizeof(Index));
  }

  // Whether an entry is the one to take: larger or, of equal ones, the first of the plane; NaN
  // before all numbers, the last one of them.
  static bool precedes(T x, Index at, T best, Index best_at) {
    if (x != x) return best == best || at > best_at;
    return x > best || (x == best && at < best_at);
  }

  // Row `row` of the result, from the plane of the image.
  void run(const T* plane, int64_t row, std::byte* scratch, T* out, Index* positions) const {
    T* best = reinterpret_cast<T*>(scratch);
    auto* where = reinterpret_cast<Index*>(scratch + best_bytes());
    const int64_t width = columns.size, first = rows.begin(row);
    std::copy_n(plane + first * width, width, best);
    for (int64_t c = 0; c < width; ++c) where[c] = static_cast<Index>(first * width + c);
    for (int64_t r = first + 1; r < rows.end(row); ++r) {
      loops.take_larger(plane + r * width, width, static_cast<Index>(r * width), 1, best, where);
    }
    for (int64_t i = 0; i < columns.out; ++i) {
      int64_t at = columns.begin(i);
      for (int64_t c = at + 1; c < columns.end(i); ++c) {
        if (precedes(best[c], where[c], best[at], where[at])) at = c;
      }
      out[i] = best[at];
      positions[i] = where[at];
    }
  }
};

Prepared adaptive_max_pool2d(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const ir::Dims &in = call.in(0).sizes, &out = call.out().sizes;
    const size_t h = in.size() - 2, w = in.size() - 1;
    const AdaptiveMax<T, Index> row{{in[h], out[h]}, {in[w], out[w]}, {}};
    const int64_t lines = call.out().numel() / out[w];
    const Slots slots(call.threads, lines, in[h] * in[w] / out[h] + in[w], row.scratch_bytes());
    return slots.prepared([row](const Args& args, const Slot& slot) {
      for (int64_t i = slot.begin; i < slot.end; ++i) {
        const int64_t plane = i / row.rows.out * row.rows.size * row.columns.size;
        const int64_t at = i * row.columns.out;
        row.run(args.in<T>(0) + plane, i % row.rows.out, slot.scratch, args.out<T>(0) + at,
                args.out<Index>(1) + at);
      }
    });
  };
  return with_float_and_index_type(call, call.in(0).dtype, call.out(1).dtype, prepare);
}

// Of images [..., H, W].
int64_t pixels(const ir::Type& type) {
  return type.sizes[type.rank() - 2] * type.sizes[type.rank() - 1];
}

Prepared adaptive_max_pool2d_backward(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const int64_t in = pixels(call.in(1)), out = pixels(call.in(0));
    const int64_t planes = call.in(0).numel() / out;
    return {[=](const Args& args) {
      const int64_t grain = std::max<int64_t>(1, 16384 / (in + out));
      parallel_for(args.threads, planes, grain, [&](int64_t plane) {
        const T* grad = args.in<T>(0) + plane * out;
        const Index* where = args.in<Index>(2) + plane * out;
        T* result = args.out<T>() + plane * in;
        std::fill_n(result, in, T{0});
        for (int64_t i = 0; i < out; ++i) {
          if (where[i] >= 0 && where[i] < in) result[where[i]] += grad[i];
        }
      });
    }};
  };
  return with_float_and_index_type(call, call.in(0).dtype, call.in(2).dtype, prepare);
}

KERNEL("adaptive_max_pool2d", adaptive_max_pool2d)
KERNEL("adaptive_max_pool2d_backward", adaptive_max_pool2d_backward)

}  // namespace

}  // namespace poptorch::kernels
