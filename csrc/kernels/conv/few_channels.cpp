#include "kernels/conv/few_channels.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/conv/pointwise.h"
#include "kernels/gemm/packed.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

struct FewConvolution {
  ConvolutionShape shape;
  bool relu = false, has_residual = false;
};

// `y` holds the residual, if there is one. Without bias or scale: nullptr.
struct FewData {
  const float *x, *packed, *bias, *scale;
  float* y;
};

}  // namespace poptorch::kernels

namespace poptorch::simd {

// The loops of one instruction set.
struct FewFunctions {
  void (*pack)(const kernels::ConvolutionShape&, const kernels::ConvolutionWeights&, float* packed);
  void (*convolve)(const kernels::FewConvolution&, int64_t first, int64_t lines,
                   const kernels::FewData&, float* memory);
  void (*sum)(const kernels::FewConvolution&, int64_t first, int64_t lines, const float* x,
              const float* dy, float* sums, float* memory);
  int64_t (*memory)(const kernels::ConvolutionShape&);  // numbers of a thread
  int64_t lanes;
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/conv/few_channels.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

const simd::FewFunctions& functions() {
  return simd::choose(simd::base::few_functions, simd::avx2::few_functions,
                      simd::avx512::few_functions);
}

// The lines of pixels in parts, each with memory of its own for what it sees.
struct Parts {
  int64_t lines, count, memory;  // numbers of one

  Parts(const FewConvolution& f, int64_t most)
      : lines(f.shape.lines()),
        count(std::clamp<int64_t>(products(f.shape) / least_products, 1, most)),
        memory(align_numbers<float>(functions().memory(f.shape))) {}

  // fn(part, its first line, its lines)
  void each(int threads, const auto& fn) const {
    parallel_for(threads, count, 1, [&](int64_t i) {
      fn(i, lines * i / count, lines * (i + 1) / count - lines * i / count);
    });
  }

 private:
  static constexpr int64_t least_products = 1 << 18;
  static int64_t products(const ConvolutionShape& s) {
    return s.lines() * s.w.to * s.outputs * s.taps() * s.channels;
  }
};

// A forward call. Scratch: packed weights, then the memory of the parts.
Prepared prepare(const FewConvolution& f, const ir::Dims& strides, bool is_packed, int threads) {
  const simd::FewFunctions& loops = functions();
  const ConvolutionShape& s = f.shape;
  const int64_t packed_numbers = align_numbers<float>(s.outputs) * s.taps() * s.channels;
  const Parts parts(f, std::min<int64_t>(threads, s.lines()));
  const auto run = [=, &loops](const Args& args) {
    if (f.has_residual) copy_residual(args, f.shape.lines() * f.shape.w.to * f.shape.outputs);
    float* packed = reinterpret_cast<float*>(args.scratch);
    loops.pack(f.shape, {args.in<float>(1), strides[0], strides[1], strides[2], strides[3]},
               packed);
    const FewData data{args.in<float>(0), packed, args.in<float>(2),
                       is_packed ? args.in<float>(4) : nullptr, args.out<float>(0)};
    parts.each(args.threads, [&](int64_t part, int64_t first, int64_t lines) {
      loops.convolve(f, first, lines, data, packed + packed_numbers + part * parts.memory);
    });
  };
  return {run, static_cast<size_t>(packed_numbers + parts.count * parts.memory) * sizeof(float)};
}

}  // namespace

int64_t few_lanes() { return functions().lanes; }

Prepared few_convolution(const ConvProblem& p) {
  FewConvolution f{.shape = p.shape()};
  const bool is_packed = p.weights != ConvProblem::Weights::plain;
  if (is_packed) {
    f.relu = p.call->attrs().get_string(ir::attr::activation) == "relu";
    f.has_residual = p.call->has_in(3);
  }
  return prepare(f, p.w.actual_strides(), is_packed, p.call->threads);
}

Prepared few_weight_gradient(const ConvProblem& p) {
  FewConvolution f{.shape = p.shape()};
  const ConvolutionShape& s = f.shape;
  constexpr int64_t most_parts = 8;  // of a sum, whatever the threads are
  const Parts parts(f, std::min(most_parts, s.lines()));
  const int64_t columns = s.taps() * s.channels, outputs = s.outputs;
  const int64_t own = align_numbers<float>(columns * outputs) + parts.memory;
  const auto run = [=, &loops = functions()](const Args& args) {
    float* sums = reinterpret_cast<float*>(args.scratch);
    parts.each(args.threads, [&](int64_t part, int64_t first, int64_t lines) {
      float* of_part = sums + part * own;
      loops.sum(f, first, lines, args.in<float>(1), args.in<float>(0), of_part,
                of_part + own - parts.memory);
    });
    float* dw = args.out<float>(1);
    for (int64_t i = 0; i < outputs * columns; ++i) {
      const float* from = sums + i % columns * outputs + i / columns;
      float total = 0;
      for (int64_t part = 0; part < parts.count; ++part) total += from[part * own];
      dw[i] = total;
    }
  };
  return {run, static_cast<size_t>(parts.count * own) * sizeof(float)};
}

}  // namespace poptorch::kernels
