#include "kernels/conv/weight_gradient/direct_weight_gradient.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/conv/layers.h"
#include "kernels/gemm/packed.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/parallel.h"

#define POPTORCH_SIMD_SOURCE "kernels/conv/weight_gradient/direct_weight_gradient.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

template <typename T>
const simd::DirectGradientFunctions<T>& functions() {
  return simd::choose(simd::base::direct_gradient_functions, simd::avx2::direct_gradient_functions,
                      simd::avx512::direct_gradient_functions);
}
template <>
const simd::DirectGradientFunctions<uint16_t>& functions() {
  return simd::avx512bf16::direct_gradient_functions;
}

// How dw is cut: the sums of a small one into layers, in as many whatever the threads are; then by
// panels of channels and, where they are too few for the threads, by rows or, where those are few,
// by taps of the kernel.
struct Parts {
  DirectGradient shape;
  int64_t layers, columns, panels, rows = 1, taps = 1;

  Parts(const DirectGradient& t, int64_t nr, int threads)
      : shape(t),
        layers(layers_of(t)),
        columns(nr),
        panels(ceil_div(t.channels, columns)) {
    constexpr int64_t least_rows = 24, enough = 4;  // of a part; parts of a thread that even out
    const auto is_even = [&] { return count() % threads == 0 || count() >= enough * threads; };
    while (!is_even() && t.outputs / (rows + 1) >= least_rows) ++rows;
    while (!is_even() && taps < t.taps()) ++taps;
  }

  int64_t of_layer() const { return panels * rows * taps; }
  int64_t count() const { return layers * of_layer(); }
  int64_t numbers() const { return sums_of(shape); }
  WeightPart at(int64_t i) const {
    const auto cut = [](int64_t n, int64_t at, int64_t parts) { return n * at / parts; };
    const int64_t layer = i / of_layer(), panel = i / (rows * taps) % panels;
    const int64_t r = i / taps % rows, p = i % taps;
    WeightPart part{.channel = panel * columns,
                    .row = cut(shape.outputs, r, rows),
                    .tap = cut(shape.taps(), p, taps),
                    .strip = cut(shape.strips(), layer, layers)};
    part.channels = std::min(columns, shape.channels - part.channel);
    part.rows = cut(shape.outputs, r + 1, rows) - part.row;
    part.taps = cut(shape.taps(), p + 1, taps) - part.tap;
    part.strips = cut(shape.strips(), layer + 1, layers) - part.strip;
    return part;
  }

 private:
  static int64_t sums_of(const DirectGradient& t) { return t.outputs * t.taps() * t.channels; }
  static int64_t layers_of(const DirectGradient& t) {
    constexpr int64_t few_sums = 1 << 16, most = 8, least_strips = 2;
    return sums_of(t) > few_sums ? 1 : std::clamp<int64_t>(t.strips() / least_strips, 1, most);
  }
};

template <typename T>
Prepared prepare(const ConvProblem& p) {
  const simd::DirectGradientFunctions<T>& loops = functions<T>();
  const Parts parts({p.shape()}, loops.nr, p.call->threads);
  const int64_t memory = align_numbers<float>(loops.memory(parts.shape));
  const int64_t threads = std::min<int64_t>(p.call->threads, parts.count());
  const int64_t own_layers = std::is_same_v<T, float> ? 1 : 0;  // that are summed in dw
  const auto run = [=, &loops](const Args& args) {
    float* scratch = reinterpret_cast<float*>(args.scratch);
    float *sums = scratch + threads * memory, *first = sums;
    uint16_t* rounded = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      first = args.out<float>(1);
    } else {
      rounded = args.out<T>(1);
    }
    float* others = sums + (1 - own_layers) * parts.numbers();
    parallel_parts(args.threads, threads, parts.count(),
                   [&](int64_t thread, int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t layer = i / parts.of_layer();
                       float* target = layer == 0 ? first : others + (layer - 1) * parts.numbers();
                       loops.sum(parts.shape, parts.at(i), args.in<T>(1), args.in<T>(0), target,
                                 scratch + thread * memory);
                     }
                   });
    add_layers(first, others, parts.layers - 1, parts.numbers(), rounded, args.threads);
  };
  const int64_t numbers = threads * memory + (parts.layers - own_layers) * parts.numbers();
  return {run, static_cast<size_t>(numbers) * sizeof(float)};
}

}  // namespace

int64_t direct_columns(ir::DType dtype) {
  return dtype == ir::DType::bf16 ? functions<uint16_t>().nr : functions<float>().nr;
}

Prepared direct_weight_gradient(const ConvProblem& p) {
  return p.x.dtype == ir::DType::bf16 ? prepare<uint16_t>(p) : prepare<float>(p);
}

}  // namespace poptorch::kernels
