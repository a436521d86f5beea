#include "kernels/conv/direct_weight_gradient.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/gemm/packed.h"
#include "support/align.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::simd {

// The loops of one instruction set.
struct DirectGradientFunctions {
  void (*sum)(const kernels::DirectGradient&, const kernels::WeightPart&, const float* x,
              const float* dy, float* dw, float* memory);
  int64_t (*memory)(const kernels::DirectGradient&);  // numbers that a thread needs
  int64_t nr;                                         // channels of a panel
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/conv/direct_weight_gradient.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

const simd::DirectGradientFunctions& functions() {
  return simd::choose(simd::base::direct_gradient_functions, simd::avx2::direct_gradient_functions,
                      simd::avx512::direct_gradient_functions);
}

DirectGradient gradient_of(const Call& call) {
  return {shape_of(call.attrs(), call.in(1), call.in(2), call.in(0))};
}

// How dw is cut: by panels of channels and, where they are too few for the threads, by rows or,
// where those are few, by taps of the kernel.
struct Parts {
  DirectGradient shape;
  int64_t columns, panels, rows = 1, taps = 1;

  Parts(const DirectGradient& t, int threads)
      : shape(t), columns(functions().nr), panels(ceil_div(t.channels, columns)) {
    constexpr int64_t least_rows = 24, enough = 4;  // of a part; parts of a thread that even out
    const auto is_even = [&] { return count() % threads == 0 || count() >= enough * threads; };
    while (!is_even() && t.outputs / (rows + 1) >= least_rows) ++rows;
    while (!is_even() && taps < t.taps()) ++taps;
  }

  int64_t count() const { return panels * rows * taps; }
  WeightPart at(int64_t i) const {
    const auto cut = [](int64_t n, int64_t at, int64_t parts) { return n * at / parts; };
    const int64_t panel = i / (rows * taps), r = i / taps % rows, p = i % taps;
    WeightPart part{.channel = panel * columns,
                    .row = cut(shape.outputs, r, rows),
                    .tap = cut(shape.taps(), p, taps)};
    part.channels = std::min(columns, shape.channels - part.channel);
    part.rows = cut(shape.outputs, r + 1, rows) - part.row;
    part.taps = cut(shape.taps(), p + 1, taps) - part.tap;
    return part;
  }
};

}  // namespace

int64_t direct_columns() { return functions().nr; }

Prepared direct_weight_gradient(const Call& call) {
  const Parts parts(gradient_of(call), call.threads);
  const simd::DirectGradientFunctions& loops = functions();
  const int64_t memory = align_numbers<float>(loops.memory(parts.shape));
  const int64_t threads = std::min<int64_t>(call.threads, parts.count());
  const auto run = [=, &loops](const Args& args) {
    parallel_for(args.threads, threads, 1, [&](int64_t thread) {
      float* own = reinterpret_cast<float*>(args.scratch) + thread * memory;
      for (int64_t i = parts.count() * thread / threads;
           i < parts.count() * (thread + 1) / threads; ++i) {
        loops.sum(parts.shape, parts.at(i), args.in<float>(1), args.in<float>(0),
                  args.out<float>(1), own);
      }
    });
  };
  return {run, static_cast<size_t>(threads * memory) * sizeof(float)};
}

}  // namespace poptorch::kernels
