#include "kernels/conv/winograd.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/conv/shape.h"
#include "kernels/gemm/packed.h"
#include "ops/layout.h"
#include "support/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// A patch has so many pixels in each dimension, and a kernel so many numbers in its form.
constexpr int winograd_side = 4, winograd_places = winograd_side * winograd_side;

struct Winograd {
  ConvolutionShape shape;
  bool relu = false;
  int64_t strip = 1;  // patches that are in memory together

  // Lines of patches in an image, and patches in one.
  int64_t lines() const { return (shape.h.to + 1) / 2; }
  int64_t in_line() const { return (shape.w.to + 1) / 2; }
  int64_t patches() const { return shape.images * lines() * in_line(); }

  // Numbers from one to the next, of transformed patches, of places of all patches of a strip, of
  // places of their sums for a panel of outputs, and of places of the weights of one. No powers of
  // two, or they would contend for few cache lines.
  int64_t patch_step() const { return shape.channels + line; }
  int64_t place_step() const { return strip * patch_step() + line; }
  int64_t sum_step() const { return strip * most_panel + line; }
  int64_t weight_step(int64_t panel) const { return shape.channels * panel + line; }

  static constexpr int64_t line = alignment_bytes / sizeof(float);
  static constexpr int64_t most_panel = 32;  // outputs of the widest instruction set's
};

// Without bias or residual: nullptr. The residual may lie in y. `zeros` are those of a pixel in the
// padding.
struct WinogradData {
  const float *x, *bias, *residual, *zeros;
  float* y;
};

// Some patches of all, transformed.
struct WinogradStrip {
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
  // Patches [begin, end) of a strip.
  void (*transform)(const kernels::Winograd&, const kernels::WinogradData&,
                    const kernels::WinogradStrip&, int64_t begin, int64_t end);
  // The panel of outputs that begins with this one.
  void (*pack)(const kernels::Winograd&, const kernels::WinogradWeights&, int64_t output,
               float* packed);
  void (*convolve)(const kernels::Winograd&, const kernels::WinogradData&,
                   const kernels::WinogradStrip&, int64_t output, const float* packed,
                   float* sums);
  int64_t panel;  // outputs
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/conv/winograd.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

const simd::WinogradFunctions& functions() {
  return simd::choose(simd::base::winograd_functions, simd::avx2::winograd_functions,
                      simd::avx512::winograd_functions);
}

constexpr int64_t number_bytes = sizeof(float);

// How the work is cut. Of weights that stay in a second cache all panels are packed first, and each
// thread takes strips of patches, which stay there, too. With more weights a strip is as many
// patches as stay in a third cache, and each thread packs a panel and multiplies all of them.
struct Cut {
  bool by_panels;
  int64_t panels, parts;     // threads share the work in so many parts
  int64_t packed, of_panel;  // numbers of all weights and of a panel of them
  int64_t patches, sums;     // numbers of a strip

  // Decides on s.strip, too.
  Cut(Winograd& s, int threads) {
    const int64_t panel = functions().panel;
    panels = (s.shape.outputs + panel - 1) / panel;
    of_panel = winograd_places * s.weight_step(panel);
    packed = panels * of_panel;
    constexpr int64_t most_weights = 5 << 18, least_products = 1 << 18;
    parts = std::clamp<int64_t>(packed * s.patches() / least_products, 1, threads);
    by_panels = packed * number_bytes > most_weights && panels >= parts;
    s.strip = strip_of(s);
    patches = align_numbers<float>(winograd_places * s.place_step());
    sums = align_numbers<float>(winograd_places * s.sum_step());
  }

  // Begins with the zeros.
  int64_t scratch_numbers(const Winograd& s) const {
    const int64_t shared = align_numbers<float>(s.shape.channels) + (by_panels ? patches : packed);
    return shared + parts * own_numbers();
  }
  // Of each part.
  int64_t own_numbers() const { return (by_panels ? of_panel : patches) + sums; }

 private:
  int64_t strip_of(const Winograd& s) const {
    constexpr int64_t in_second_cache = 1 << 19, in_third_cache = 4 << 20, least = 24, most = 112;
    const int64_t bytes = winograd_places * (s.patch_step() + Winograd::most_panel) * number_bytes;
    if (!by_panels) {
      const int64_t share = (s.patches() + parts - 1) / parts;
      return std::min(share, std::clamp(in_second_cache / bytes, least, most));
    }
    const int64_t strips = (s.patches() * bytes + in_third_cache - 1) / in_third_cache;
    return (s.patches() + strips - 1) / strips;
  }
};

void convolve_strips(const Winograd& s, const Cut& cut, const WinogradWeights& weights,
                     const WinogradData& data, float* memory, int threads) {
  const simd::WinogradFunctions& loops = functions();
  parallel_for(threads, cut.panels, (cut.panels + cut.parts - 1) / cut.parts,
               [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      loops.pack(s, weights, i * loops.panel, memory + i * cut.of_panel);
    }
  });
  float* of_parts = memory + cut.packed;
  parallel_for(threads, cut.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      float* own = of_parts + part * cut.own_numbers();
      const int64_t last = s.patches() * (part + 1) / cut.parts;
      for (int64_t at = s.patches() * part / cut.parts; at < last; at += s.strip) {
        const WinogradStrip strip{at, std::min(s.strip, last - at), own};
        loops.transform(s, data, strip, 0, strip.count);
        for (int64_t i = 0; i < cut.panels; ++i) {
          loops.convolve(s, data, strip, i * loops.panel, memory + i * cut.of_panel,
                         own + cut.patches);
        }
      }
    }
  });
}

void convolve_panels(const Winograd& s, const Cut& cut, const WinogradWeights& weights,
                     const WinogradData& data, float* memory, int threads) {
  const simd::WinogradFunctions& loops = functions();
  float* of_parts = memory + cut.patches;
  for (int64_t first = 0; first < s.patches(); first += s.strip) {
    const WinogradStrip strip{first, std::min(s.strip, s.patches() - first), memory};
    parallel_for(threads, strip.count, (strip.count + cut.parts - 1) / cut.parts,
                 [&](int64_t begin, int64_t end) { loops.transform(s, data, strip, begin, end); });
    parallel_for(threads, cut.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        float* own = of_parts + part * cut.own_numbers();
        const int64_t last = cut.panels * (part + 1) / cut.parts;
        for (int64_t i = cut.panels * part / cut.parts; i < last; ++i) {
          loops.pack(s, weights, i * loops.panel, own);
          loops.convolve(s, data, strip, i * loops.panel, own, own + cut.of_panel);
        }
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
    (cut.by_panels ? convolve_panels : convolve_strips)(
        s, cut, weights, data, zeros + align_numbers<float>(s.shape.channels), args.threads);
  };
  return {run, static_cast<size_t>(cut.scratch_numbers(s) * number_bytes)};
}

Winograd packed(const ir::Attrs& attrs, const ir::Dims& weight_size, const ir::Dims& x) {
  const ir::Type image{ir::DType::f32, x, {}}, weight{ir::DType::f32, weight_size, {}};
  Winograd s{shape_of(attrs, image, weight, {ir::DType::f32, {x[0], weight_size[0], 1, 1}, {}})};
  for (ConvolutionAxis* axis : {&s.shape.h, &s.shape.w}) {
    axis->to = axis->from + 2 * axis->padding - axis->kernel + 1;
  }
  return s;
}

Winograd forward(const Call& call) {
  return {shape_of(call.attrs(), call.in(0), call.in(1), call.out())};
}

// The gradient of the input is a convolution of the gradient with the kernel turned round.
Winograd backward(const Call& call) {
  Winograd s{shape_of(call.attrs(), call.in(1), call.in(2), call.in(0))};
  std::swap(s.shape.channels, s.shape.outputs);
  for (ConvolutionAxis* axis : {&s.shape.h, &s.shape.w}) {
    std::swap(axis->from, axis->to);
    axis->padding = axis->kernel - 1 - axis->padding;
  }
  return s;
}

}  // namespace

Prepared packed_winograd(const Call& call) {
  const ir::Dims weight_size = call.attrs().get_ints("weight_size");
  Winograd s = packed(call.attrs(), weight_size, ops::channels_first(call.in(0)).sizes);
  s.relu = call.attrs().get_string("activation") == "relu";
  const ir::Type weight{ir::DType::f32, weight_size, {}};
  return prepare(s, {0, 1, 2, 3, 4, weights_of(weight.actual_strides())}, call.threads);
}

Prepared winograd(const Call& call) {
  const int bias = call.has_in(2) ? 2 : -1;
  return prepare(forward(call), {0, 1, bias, -1, -1, weights_of(call.in(1).actual_strides())},
                 call.threads);
}

Prepared winograd_input_gradient(const Call& call) {
  const ir::Dims strides = call.in(2).actual_strides();
  const ConvolutionWeights turned{nullptr, strides[1], strides[0], -strides[2], -strides[3]};
  return prepare(backward(call), {0, 2, -1, -1, -1, turned, 2 * (strides[2] + strides[3])},
                 call.threads);
}

}  // namespace poptorch::kernels
