#include "kernels/convolution_winograd.h"

#include <algorithm>
#include <cstdint>
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
  int64_t strip = 1;  // patches that are computed together
  bool relu = false;

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
  void (*pack)(const kernels::Winograd&, const kernels::ConvolutionWeights&, int64_t first_channel,
               int64_t channels, float* packed);
  void (*convolve)(const kernels::Winograd&, int64_t first, int64_t count,
                   const kernels::WinogradData&, float* memory);
  int64_t (*memory)(const kernels::Winograd&);  // numbers of a thread
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

}  // namespace

bool has_winograd(const ir::Attrs& attrs, const ir::Dims& weight_size,
                  const ir::Dims& input_size) {
  static const bool on = is_on("winograd");
  return on && ir::product(input_size) > 0 && ops::takes_winograd(attrs, weight_size);
}

Prepared pack_winograd(const Call& call) {
  const ir::Type& w = call.in(0);
  const ir::Dims strides = w.actual_strides();
  Winograd s;
  s.shape.outputs = w.sizes[0];
  s.shape.channels = w.sizes[1];
  const int64_t used = ops::winograd_places * w.sizes[0] * w.sizes[1];
  return {[=, room = call.out().numel(), &loops = functions()](const Args& args) {
    const ConvolutionWeights from{args.in<float>(0), strides[0], strides[1], strides[2],
                                  strides[3]};
    auto* packed = args.out<float>();
    const int64_t grain = std::max<int64_t>(1, 4096 / s.shape.outputs);
    parallel_for(args.threads, s.shape.channels, grain, [&](int64_t begin, int64_t end) {
      loops.pack(s, from, begin, end - begin, packed);
    });
    std::fill_n(packed + used, room - used, 0.0f);
  }};
}

Prepared packed_winograd(const Call& call) {
  const ir::Type x = ops::channels_first(call.in(0)), y = ops::channels_first(call.out());
  const ir::Type w{ir::DType::f32, call.attrs().get_ints("weight_size"), {}};
  Winograd s{.shape = shape_of(call.attrs(), x, w, y),
             .relu = call.attrs().get_string("activation") == "relu"};
  s.strip = strip_of(s, call.threads);
  const int64_t patches = s.patches(), parts = std::min<int64_t>(call.threads, patches);
  const int64_t memory = align_numbers<float>(functions().memory(s));
  const auto run = [=, &loops = functions()](const Args& args) {
    const WinogradData data{args.in<float>(0), args.in<float>(1), args.in<float>(2),
                            args.in<float>(3), args.out<float>(0)};
    parallel_for(args.threads, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t first = patches * part / parts, last = patches * (part + 1) / parts;
        loops.convolve(s, first, last - first, data,
                       reinterpret_cast<float*>(args.scratch) + part * memory);
      }
    });
  };
  return {run, static_cast<size_t>(parts * memory) * sizeof(float)};
}

}  // namespace poptorch::kernels
