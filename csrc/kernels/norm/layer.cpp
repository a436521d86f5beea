// Kernels of layer norm.
#include <algorithm>

#include "kernels/reduction/types.h"
#include "kernels/rows/rows.h"
#include "ops/kernel.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

constexpr int64_t grain_elements = 8192;  // worth some 5 us

// A tensor as [rows, n], n entries being normalized together.
struct Split {
  int64_t rows = 1, n = 1;

  Split(const Call& call, const ir::Type& x) {
    n = ir::product(call.attrs().get_ints(ir::attr::normalized_shape));
    rows = n == 0 ? 0 : x.numel() / n;
  }
  int64_t grain() const { return std::max<int64_t>(grain_elements / n, 1); }
};

Prepared layer_norm(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Split split(call, call.in(0));
    const double eps = call.attrs().get_float(ir::attr::eps);
    return {[split, eps, &loops = rows<T>()](const Args& args) {
      if (split.rows == 0) return;
      parallel_for(args.threads, split.rows, split.grain(), [&](int64_t i) {
        const int64_t at = i * split.n;
        loops.layer_norm({.x = args.in<T>(0) + at,
                          .weight = args.in<T>(1),
                          .bias = args.in<T>(2),
                          .y = args.out<T>(0) + at,
                          .eps = eps},
                         split.n, args.out<T>(1) + i, args.out<T>(2) + i);
      });
    }};
  });
}

// Rows are added up in a fixed number of chunks, so that sums do not depend on the threads.
constexpr int64_t most_chunks = 32, least_rows = 8;

template <typename T>
struct Gradients {
  Split split;
  int64_t chunks;
  bool wants[3];
  const Rows<T>& loops = rows<T>();

  // Scratch: for each chunk the sums of the weight's gradient, then of the bias's.
  size_t scratch_bytes() const {
    return wants[1] || wants[2] ? static_cast<size_t>(2 * chunks * split.n) * sizeof(T) : 0;
  }

  void run_chunk(const Args& args, int64_t chunk) const {
    T* sums = reinterpret_cast<T*>(args.scratch) + 2 * chunk * split.n;
    if (wants[1] || wants[2]) std::fill(sums, sums + 2 * split.n, T{0});
    for (int64_t i = split.rows * chunk / chunks; i < split.rows * (chunk + 1) / chunks; ++i) {
      const int64_t at = i * split.n;
      loops.layer_norm_backward({.g = args.in<T>(0) + at,
                                 .x = args.in<T>(1) + at,
                                 .weight = args.in<T>(4),
                                 .mean = args.in<T>(2)[i],
                                 .rstd = args.in<T>(3)[i],
                                 .dx = wants[0] ? args.out<T>(0) + at : nullptr,
                                 .dweight = wants[1] ? sums : nullptr,
                                 .dbias = wants[2] ? sums + split.n : nullptr},
                                split.n);
    }
  }

  // Adds up what the chunks found for entries [begin, end) of the weight (which = 0) or bias.
  void join(const Args& args, int which, int64_t begin, int64_t end) const {
    constexpr int64_t width = 64;  // entries summed at once
    const T* sums = reinterpret_cast<const T*>(args.scratch) + which * split.n;
    for (int64_t start = begin; start < end; start += width) {
      const int64_t count = std::min(width, end - start);
      double totals[width] = {};
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const T* part = sums + 2 * chunk * split.n + start;
        for (int64_t j = 0; j < count; ++j) totals[j] += part[j];
      }
      T* out = args.out<T>(1 + which) + start;
      for (int64_t j = 0; j < count; ++j) out[j] = static_cast<T>(totals[j]);
    }
  }

  void run(const Args& args) const {
    if (split.n == 0) return;
    const int64_t chunk_elements = split.rows * split.n / chunks + 1;
    parallel_for(args.threads, chunks, std::max<int64_t>(grain_elements / chunk_elements, 1),
                 [&](int64_t chunk) { run_chunk(args, chunk); });
    for (int which : {0, 1}) {
      if (!wants[1 + which]) continue;
      parallel_for(args.threads, split.n, std::max<int64_t>(grain_elements / chunks, 1),
                   [&](int64_t begin, int64_t end) { join(args, which, begin, end); });
    }
  }
};

Prepared layer_norm_backward(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Split split(call, call.in(1));
    const std::vector<bool> mask = call.attrs().get_bools(ir::attr::output_mask);
    const int64_t chunks = std::clamp<int64_t>(split.rows / least_rows, 1, most_chunks);
    const Gradients<T> gradients{split, chunks, {mask[0], mask[1], mask[2]}};
    return {[gradients](const Args& args) { gradients.run(args); }, gradients.scratch_bytes()};
  });
}

}  // namespace

KERNEL("native_layer_norm", layer_norm)
KERNEL("native_layer_norm_backward", layer_norm_backward)

}  // namespace poptorch::kernels
