#include "kernels/convolution_winograd.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/convolution_shape.h"
#include "kernels/gemm_packed.h"
#include "ops/convolution.h"
#include "ops/layout.h"
#include "support/align.h"
#include "support/parallel.h"
#include "support/switches.h"

namespace poptorch::kernels {

struct Winograd {
  ConvolutionShape shape;
  bool relu = false;
  int64_t strip = 1;  // patches that are computed together

  // Lines of patches in an image, and patches in one.
  int64_t lines() const { return (shape.h.to + 1) / 2; }
  int64_t in_line() const { return (shape.w.to + 1) / 2; }
  int64_t patches() const { return shape.images * lines() * in_line(); }
  // Channels of one patch to those of the next: no power of two.
  int64_t patch_step() const { return shape.channels + 16; }
};

// Without bias or residual: nullptr. The residual may lie in y.
struct WinogradData {
  const float *x, *packed, *bias, *residual;
  float* y;
};

}  // namespace poptorch::kernels

namespace poptorch::simd {

// The loops of one instruction set.
struct WinogradFunctions {
  // Vectors [first, last) of outputs; `scale` is nullptr or has a factor of each output.
  void (*pack)(const kernels::Winograd&, const kernels::ConvolutionWeights&, const float* scale,
               int64_t first, int64_t last, float* packed);
  void (*convolve)(const kernels::Winograd&, int64_t first, int64_t count,
                   const kernels::WinogradData&, float* memory);
  int64_t (*memory)(const kernels::Winograd&);  // numbers of a thread
  int64_t lanes;
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/convolution_winograd.inl"
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

// As many patches as stay in a second cache, with the sums of a panel of outputs.
int64_t strip_of(const Winograd& s, int threads) {
  constexpr int64_t most_bytes = 1 << 19, least = 24, most = 112, panel = 32;
  const int64_t bytes =
      ops::winograd_places * (s.patch_step() + panel) * static_cast<int64_t>(sizeof(float));
  const int64_t share = (s.patches() + threads - 1) / threads;
  return std::min(share, std::clamp(most_bytes / bytes, least, most));
}

// Of the row packed_convolution.
Winograd packed_shape(const Call& call) {
  const ir::Type weight{ir::DType::f32, call.attrs().get_ints("weight_size"), {}};
  return {shape_of(call.attrs(), ops::channels_first(call.in(0)), weight,
                   ops::channels_first(call.out()))};
}

// Numbers of packed weights.
int64_t packed_numbers(const Winograd& s) {
  return ops::winograd_places * s.shape.outputs * s.shape.channels;
}

void pack(const Winograd& s, const ConvolutionWeights& from, const float* scale, float* packed,
          int threads) {
  const simd::WinogradFunctions& loops = functions();
  const int64_t grain = std::max<int64_t>(1, 4096 / (loops.lanes * s.shape.channels));
  parallel_for(threads, s.shape.outputs / loops.lanes, grain, [&](int64_t begin, int64_t end) {
    loops.pack(s, from, scale, begin, end, packed);
  });
}

// Weights of an operand that are not packed; the first one lies `first` numbers from its beginning.
struct PlainWeights {
  ConvolutionWeights at;
  int64_t first = 0;

  PlainWeights(const ir::Dims& strides)
      : at{nullptr, strides[0], strides[1], strides[2], strides[3]} {}

  ConvolutionWeights of(const float* operand) const {
    ConvolutionWeights weights = at;
    weights.weights = operand + first;
    return weights;
  }
};

// Which operands of a call are what; -1: none is.
struct Operands {
  int image, weight, bias = -1, residual = -1, scale = -1;
  std::optional<PlainWeights> plain = {};  // none: the weights are packed

  static const float* get(const Args& args, int which) {
    return which < 0 ? nullptr : args.in<float>(static_cast<size_t>(which));
  }
};

// Scratch: packed weights, unless the operand is, then the memory of the parts of the patches.
Prepared prepare(Winograd s, const Operands& in, int threads) {
  s.strip = strip_of(s, threads);
  const simd::WinogradFunctions& loops = functions();
  const int64_t patches = s.patches(), parts = std::min<int64_t>(threads, patches);
  const int64_t own = in.plain ? align_numbers<float>(packed_numbers(s)) : 0;
  const int64_t memory = align_numbers<float>(loops.memory(s));
  const auto run = [=, &loops](const Args& args) {
    auto* scratch = reinterpret_cast<float*>(args.scratch);
    const float* weights = Operands::get(args, in.weight);
    if (in.plain) {
      pack(s, in.plain->of(weights), Operands::get(args, in.scale), scratch, args.threads);
      weights = scratch;
    }
    const WinogradData data{Operands::get(args, in.image), weights, Operands::get(args, in.bias),
                            Operands::get(args, in.residual), args.out<float>()};
    parallel_for(args.threads, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t first = patches * part / parts, last = patches * (part + 1) / parts;
        loops.convolve(s, first, last - first, data, scratch + own + part * memory);
      }
    });
  };
  return {run, static_cast<size_t>(own + parts * memory) * sizeof(float)};
}

// With weights that are not packed: so few, and patches enough, that their transformation costs
// little of the time and memory that it saves.
bool pays_unpacked(const Winograd& s) {
  constexpr int64_t most_kernels = 1 << 16, least_patches = 64;
  return s.shape.outputs * s.shape.channels <= most_kernels && s.patches() >= least_patches;
}

bool is_usable() {
  static const bool on = is_on("winograd");
  return on;
}

// Of a call with channels as dimension 1.
bool is_plain(const Call& call, const ir::Type& image, const ir::Type& weight) {
  return is_usable() && image.dtype == ir::DType::f32 && !call.attrs().get_bool("transposed") &&
         ops::takes_winograd(call.attrs(), weight.sizes) && image.numel() > 0 &&
         ops::lies_channels_last(image) && ops::lies_channels_last(call.out());
}

Winograd forward(const Call& call) {
  return {shape_of(call.attrs(), call.in(0), call.in(1), call.out())};
}

// The gradient of the input is a convolution of the gradient with the kernel turned round.
Winograd backward(const Call& call) {
  ConvolutionShape s = shape_of(call.attrs(), call.in(1), call.in(2), call.in(0));
  std::swap(s.channels, s.outputs);
  for (ConvolutionAxis* axis : {&s.h, &s.w}) {
    std::swap(axis->from, axis->to);
    axis->padding = axis->kernel - 1 - axis->padding;
  }
  return {s};
}

}  // namespace

bool has_winograd(const ir::Attrs& attrs, const ir::Dims& weight_size,
                  const ir::Dims& input_size) {
  return is_usable() && ir::product(input_size) > 0 && ops::takes_winograd(attrs, weight_size);
}

bool has_unpacked_winograd(const Call& call) {
  const ir::Dims weight_size = call.attrs().get_ints("weight_size");
  return has_winograd(call.attrs(), weight_size, call.in(0).sizes) &&
         pays_unpacked(packed_shape(call));
}

Prepared pack_winograd(const Call& call) {
  const ir::Type& w = call.in(0);
  Winograd s;
  s.shape.outputs = w.sizes[0];
  s.shape.channels = w.sizes[1];
  const PlainWeights plain(w.actual_strides());
  return {[=, room = call.out().numel()](const Args& args) {
    auto* packed = args.out<float>();
    pack(s, plain.of(args.in<float>(0)), nullptr, packed, args.threads);
    std::fill_n(packed + packed_numbers(s), room - packed_numbers(s), 0.0f);
  }};
}

Prepared packed_winograd(const Call& call) {
  Winograd s = packed_shape(call);
  s.relu = call.attrs().get_string("activation") == "relu";
  Operands in{.image = 0, .weight = 1, .bias = 2, .residual = 3};
  if (is_unpacked(call)) {
    in.plain = PlainWeights(call.in(1).actual_strides());
    in.scale = 4;
  }
  return prepare(s, in, call.threads);
}

bool has_winograd_convolution(const Call& call) {
  if (call.has_in(2) && !call.in(2).is_contiguous()) return false;
  return is_plain(call, call.in(0), call.in(1)) && pays_unpacked(forward(call));
}

Prepared winograd_convolution(const Call& call) {
  Operands in{.image = 0, .weight = 1, .plain = PlainWeights(call.in(1).actual_strides())};
  if (call.has_in(2)) in.bias = 2;
  return prepare(forward(call), in, call.threads);
}

bool has_winograd_input_gradient(const Call& call) {
  if (!is_plain(call, call.in(0), call.in(2))) return false;
  const Winograd s = backward(call);
  return std::min(s.shape.h.padding, s.shape.w.padding) >= 0 && pays_unpacked(s);
}

Prepared winograd_input_gradient(const Call& call) {
  const ir::Dims strides = call.in(2).actual_strides();
  PlainWeights plain({strides[1], strides[0], -strides[2], -strides[3]});
  plain.first = 2 * (strides[2] + strides[3]);
  return prepare(backward(call), {.image = 0, .weight = 2, .plain = plain}, call.threads);
}

}  // namespace poptorch::kernels
