// nearest, fps: searches among points.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/index/rows.h"
#include "kernels/reduction/types.h"
#include "ops/families/indexing.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

template <typename T>
double distance(const T* a, const T* b, int64_t width) {
  double sum = 0;
  for (int64_t k = 0; k < width; ++k) {
    const double apart = static_cast<double>(a[k]) - static_cast<double>(b[k]);
    sum += apart * apart;
  }
  return sum;
}

// Whether a distance comes before the best one so far; NaN before all, as in torch.argmin.
bool is_less(double found, double best) {
  return found < best || (std::isnan(found) && !std::isnan(best));
}

template <typename T, typename Index, typename Batch>
Prepared nearest_typed(const Call& call) {
  const int64_t n = call.in(0).sizes[0], m = call.in(1).sizes[0], width = call.in(0).sizes[1];
  const bool has_batch = call.has_in(2);
  return {[=](const Args& args) {
    const T *x = args.in<T>(0), *y = args.in<T>(1);
    const Batch* batch_x = has_batch ? args.in<Batch>(2) : nullptr;
    const Batch* batch_y = has_batch ? args.in<Batch>(3) : nullptr;
    Index* out = args.out<Index>();
    parallel_for(args.threads, n, grain_for(m * (width + 1)), [=](int64_t i) {
      int64_t at = -1;
      double best = 0;
      for (int64_t j = 0; j < m; ++j) {
        if (has_batch && batch_x[i] != batch_y[j]) continue;
        const double found = distance(x + i * width, y + j * width, width);
        if (at >= 0 && !is_less(found, best)) continue;
        at = j, best = found;
      }
      USER_CHECK(at >= 0, "[nearest] point ", i, " of x belongs to example ", batch_x[i],
                 ", but y has no point of it. Give each example a point in y.");
      out[i] = static_cast<Index>(at);
    });
  }};
}

Prepared nearest(const Call& call) {
  const ir::DType batch = call.has_in(2) ? call.in(2).dtype : ir::DType::i32;
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
    return with_index_type(call, call.out().dtype, [&]<typename Index>(Index) {
      return with_index_type(call, batch, [&]<typename Batch>(Batch) {
        return nearest_typed<T, Index, Batch>(call);
      });
    });
  });
}

// The points of one example; `nearest` has the distance of each to those taken.
template <typename T, typename Index>
void take_farthest(const T* x, int64_t n, int64_t width, int64_t at, double* nearest, Index* out,
                   int64_t count, int64_t first) {
  std::fill_n(nearest, n, std::numeric_limits<double>::infinity());
  for (int64_t taken = 0; taken < count; ++taken) {
    out[taken] = static_cast<Index>(first + at);
    int64_t farthest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double found = distance(x + i * width, x + at * width, width);
      if (is_less(found, nearest[i])) nearest[i] = found;
      if (is_less(-nearest[i], -nearest[farthest])) farthest = i;
    }
    at = farthest;
  }
}

template <typename T, typename Index, typename Start>
Prepared fps_typed(const Call& call) {
  const ops::Examples examples = ops::examples_of({call.op});
  const int64_t width = call.in(0).sizes[1];
  const bool has_starts = call.has_in(1);
  ir::Dims places;  // where the results of each example begin
  for (int64_t place = 0; const int64_t count : examples.counts) {
    places.push_back(place);
    place += count;
  }
  const auto run = [=](const Args& args) {
    auto* nearest = reinterpret_cast<double*>(args.scratch);
    const auto work = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = examples.ptr[i], n = examples.ptr[i + 1] - first;
        if (n == 0) continue;
        const int64_t start = has_starts ? args.in<Start>(1)[i] : 0;
        USER_CHECK(start >= 0 && start < n, "[fps] the start ", start, " of example ", i,
                   " is out of range: it has ", n, " points. Start at 0 to ", n - 1, ".");
        take_farthest(args.in<T>(0) + first * width, n, width, start, nearest + first,
                      args.out<Index>() + places[i], examples.counts[i], first);
      }
    };
    parallel_for(args.threads, static_cast<int64_t>(examples.counts.size()), 1, work);
  };
  return {run, sizeof(double) * static_cast<size_t>(call.in(0).sizes[0])};
}

Prepared fps(const Call& call) {
  const ir::DType start = call.has_in(1) ? call.in(1).dtype : ir::DType::i32;
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
    return with_index_type(call, call.out().dtype, [&]<typename Index>(Index) {
      return with_index_type(call, start, [&]<typename Start>(Start) {
        return fps_typed<T, Index, Start>(call);
      });
    });
  });
}

KERNEL("nearest", nearest)
KERNEL("fps", fps)

}  // namespace

}  // namespace poptorch::kernels
