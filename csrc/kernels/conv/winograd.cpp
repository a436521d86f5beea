#include "kernels/conv/winograd.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/gemm/packed.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// Of an input tile: pixels in each dimension, and elements, as many as a transformed kernel has.
constexpr int winograd_side = 4, winograd_elements = winograd_side * winograd_side;

struct Winograd {
  ConvolutionShape shape;
  bool relu = false;
  int64_t block = 1;  // tiles that are in memory together

  // Lines of tiles in an image, and tiles in one.
  int64_t lines() const { return (shape.h.to + 1) / 2; }
  int64_t in_line() const { return (shape.w.to + 1) / 2; }
  int64_t tiles() const { return shape.images * lines() * in_line(); }

  // Numbers from one to the next: of transformed tiles; of elements of all tiles of a block, of
  // their sums for a panel of outputs, and of the weights of a panel. No powers of two, or they
  // would contend for few cache lines.
  int64_t tile_step() const { return shape.channels + line; }
  int64_t element_step() const { return block * tile_step() + line; }
  int64_t sum_step() const { return block * most_nr + line; }
  int64_t weight_step(int64_t nr) const { return shape.channels * nr + line; }

  static constexpr int64_t line = alignment_bytes / sizeof(float);
  static constexpr int64_t most_nr = 32;  // of the widest instruction set
};

// Without bias or residual: nullptr. The residual may lie in y. `zeros` are those of a pixel in the
// padding.
struct WinogradData {
  const float *x, *bias, *residual, *zeros;
  float* y;
};

// Some tiles of all, transformed.
struct TileBlock {
  int64_t first, count;
  float* numbers;
};

// Weights in the module, with a factor of each output or without: nullptr.
struct WinogradWeights {
  ConvolutionWeights plain;
  const float* scale;
};

}  // namespace poptorch::kernels

namespace poptorch::simd {

// The loops of one instruction set.
struct WinogradFunctions {
  // Tiles [begin, end) of a block.
  void (*transform)(const kernels::Winograd&, const kernels::WinogradData&,
                    const kernels::TileBlock&, int64_t begin, int64_t end);
  // The panel of outputs that begins with this one.
  void (*pack)(const kernels::Winograd&, const kernels::WinogradWeights&, int64_t output,
               float* packed);
  void (*convolve)(const kernels::Winograd&, const kernels::WinogradData&,
                   const kernels::TileBlock&, int64_t output, const float* packed,
                   float* sums);
  int64_t nr;  // outputs of a panel
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/conv/winograd.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

const simd::WinogradFunctions& functions() {
  return simd::choose(simd::base::winograd_functions, simd::avx2::winograd_functions,
                      simd::avx512::winograd_functions);
}

constexpr int64_t number_bytes = sizeof(float);

// How the work is cut. Of weights that stay in a second cache all panels are packed first, and each
// thread takes blocks of tiles, which stay there, too. With more weights a block is as many
// tiles as stay in a third cache, and each thread packs a panel and multiplies all of them.
struct Cut {
  bool by_panels;
  int64_t panels, parts;     // threads share the work in so many parts
  int64_t packed, of_panel;  // numbers of all weights and of a panel of them
  int64_t tiles, sums;       // numbers of a block

  // Sets s.block, too.
  Cut(Winograd& s, int threads) {
    const int64_t nr = functions().nr;
    panels = ceil_div(s.shape.outputs, nr);
    of_panel = winograd_elements * s.weight_step(nr);
    packed = panels * of_panel;
    constexpr int64_t most_weights = 5 << 18, least_products = 1 << 18;
    parts = std::clamp<int64_t>(packed * s.tiles() / least_products, 1, threads);
    by_panels = packed * number_bytes > most_weights && panels >= parts;
    s.block = block_of(s);
    tiles = align_numbers<float>(winograd_elements * s.element_step());
    sums = align_numbers<float>(winograd_elements * s.sum_step());
  }

  // Begins with the zeros.
  int64_t scratch_numbers(const Winograd& s) const {
    const int64_t shared = align_numbers<float>(s.shape.channels) + (by_panels ? tiles : packed);
    return shared + parts * own_numbers();
  }
  // Of each part.
  int64_t own_numbers() const { return (by_panels ? of_panel : tiles) + sums; }

 private:
  int64_t block_of(const Winograd& s) const {
    constexpr int64_t in_second_cache = 1 << 19, in_third_cache = 4 << 20, least = 24, most = 112;
    const int64_t bytes = winograd_elements * (s.tile_step() + Winograd::most_nr) * number_bytes;
    if (!by_panels) {
      const int64_t share = ceil_div(s.tiles(), parts);
      return std::min(share, std::clamp(in_second_cache / bytes, least, most));
    }
    const int64_t blocks = ceil_div(s.tiles() * bytes, in_third_cache);
    return ceil_div(s.tiles(), blocks);
  }
};

void convolve_blocks(const Winograd& s, const Cut& cut, const WinogradWeights& weights,
                     const WinogradData& data, float* memory, int threads) {
  const simd::WinogradFunctions& loops = functions();
  parallel_for(threads, cut.panels, ceil_div(cut.panels, cut.parts), [&](int64_t i) {
    loops.pack(s, weights, i * loops.nr, memory + i * cut.of_panel);
  });
  float* of_parts = memory + cut.packed;
  parallel_for(threads, cut.parts, 1, [&](int64_t part) {
    float* own = of_parts + part * cut.own_numbers();
    const int64_t last = s.tiles() * (part + 1) / cut.parts;
    for (int64_t at = s.tiles() * part / cut.parts; at < last; at += s.block) {
      const TileBlock block{at, std::min(s.block, last - at), own};
      loops.transform(s, data, block, 0, block.count);
      for (int64_t i = 0; i < cut.panels; ++i) {
        loops.convolve(s, data, block, i * loops.nr, memory + i * cut.of_panel,
                       own + cut.tiles);
      }
    }
  });
}

void convolve_panels(const Winograd& s, const Cut& cut, const WinogradWeights& weights,
                     const WinogradData& data, float* memory, int threads) {
  const simd::WinogradFunctions& loops = functions();
  float* of_parts = memory + cut.tiles;
  for (int64_t first = 0; first < s.tiles(); first += s.block) {
    const TileBlock block{first, std::min(s.block, s.tiles() - first), memory};
    parallel_for(threads, block.count, ceil_div(block.count, cut.parts),
                 [&](int64_t begin, int64_t end) { loops.transform(s, data, block, begin, end); });
    parallel_for(threads, cut.parts, 1, [&](int64_t part) {
      float* own = of_parts + part * cut.own_numbers();
      const int64_t last = cut.panels * (part + 1) / cut.parts;
      for (int64_t i = cut.panels * part / cut.parts; i < last; ++i) {
        loops.pack(s, weights, i * loops.nr, own);
        loops.convolve(s, data, block, i * loops.nr, own, own + cut.of_panel);
      }
    });
  }
}

// Which operands of a call are what, -1: none is; and how the weights lie from the first one on.
struct Operands {
  int image, weight, bias, residual, scale;
  ConvolutionWeights weights;
  int64_t first_weight = 0;

  static const float* get(const Args& args, int which) {
    return which < 0 ? nullptr : args.in<float>(static_cast<size_t>(which));
  }
};

ConvolutionWeights weights_of(const ir::Dims& strides) {
  return {nullptr, strides[0], strides[1], strides[2], strides[3]};
}

Prepared prepare(Winograd s, const Operands& in, int threads) {
  const Cut cut(s, threads);
  const auto run = [=](const Args& args) {
    auto* zeros = reinterpret_cast<float*>(args.scratch);
    std::fill_n(zeros, s.shape.channels, 0.0f);
    WinogradWeights weights{in.weights, Operands::get(args, in.scale)};
    weights.plain.weights = Operands::get(args, in.weight) + in.first_weight;
    const WinogradData data{Operands::get(args, in.image), Operands::get(args, in.bias),
                            Operands::get(args, in.residual), zeros, args.out<float>()};
    (cut.by_panels ? convolve_panels : convolve_blocks)(
        s, cut, weights, data, zeros + align_numbers<float>(s.shape.channels), args.threads);
  };
  return {run, static_cast<size_t>(cut.scratch_numbers(s) * number_bytes)};
}

}  // namespace

Prepared winograd(const ConvProblem& p) {
  const Call& call = *p.call;
  const ir::Dims strides = p.w.actual_strides();
  Winograd s{p.shape()};
  if (p.is(ConvProblem::Direction::data_gradient)) {
    // A convolution of the gradient with the kernel turned round.
    std::swap(s.shape.channels, s.shape.outputs);
    for (ConvolutionAxis* axis : {&s.shape.h, &s.shape.w}) {
      std::swap(axis->from, axis->to);
      axis->padding = axis->kernel - 1 - axis->padding;
    }
    const ConvolutionWeights turned{nullptr, strides[1], strides[0], -strides[2], -strides[3]};
    return prepare(s, {0, 2, -1, -1, -1, turned, 2 * (strides[2] + strides[3])}, call.threads);
  }
  if (p.weights != ConvProblem::Weights::plain) {
    s.relu = call.attrs().get_string(ir::attr::activation) == "relu";
    return prepare(s, {0, 1, 2, 3, 4, weights_of(strides)}, call.threads);
  }
  const int bias = call.has_in(2) ? 2 : -1;
  return prepare(s, {0, 1, bias, -1, -1, weights_of(strides)}, call.threads);
}

}  // namespace poptorch::kernels
