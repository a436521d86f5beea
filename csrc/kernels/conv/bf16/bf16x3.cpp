#include "kernels/conv/bf16/bf16x3.h"

#include <algorithm>

#include "kernels/gemm/bf16/bf16x3.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"

namespace poptorch::kernels {
namespace {

Bf16x3Convolution shape_of(const ConvProblem& p) {
  const ir::Dims &x = p.x.sizes, &w = p.w.sizes, &padding = p.padding;
  const int64_t channels = w[1], outputs = w[0], taps = p.taps();
  if (p.is(ConvProblem::Direction::data_gradient)) {
    // A convolution of the gradient with the kernel turned round.
    const ir::Dims& dy = p.y.sizes;
    return {dy[0], dy[2], dy[3], outputs, channels, w[2], w[3], w[2] - 1 - padding[0],
            w[3] - 1 - padding[1], 1, taps * channels, (taps - 1) * channels, -channels};
  }
  Bf16x3Convolution s{x[0], x[2], x[3], channels, outputs, w[2], w[3], padding[0], padding[1]};
  using Weights = ConvProblem::Weights;
  if (p.weights == Weights::packed) {
    s.line = 1, s.depth = outputs, s.first = 0, s.next = channels * outputs;
  } else if (p.weights == Weights::unpacked) {
    s.line = channels * taps, s.depth = taps, s.first = 0, s.next = 1;
  } else {
    s.line = taps * channels, s.depth = 1, s.first = 0, s.next = channels;
  }
  return s;
}

size_t scratch_bytes(const Bf16x3Units& units, int threads) {
  return static_cast<size_t>(units.weight_bytes + threads * units.unit_bytes());
}

}  // namespace

Bf16x3Units::Bf16x3Units(const Bf16x3Convolution& s, int threads) {
  constexpr int64_t most_unit = 1 << 20, most_weights = 4 << 20;  // bytes
  constexpr int64_t number_bytes = 3 * 2;
  const int64_t line_bytes = s.padded_width() * s.channels * number_bytes;
  rows = std::clamp<int64_t>(most_unit / line_bytes - s.kernel_height + 1, 1, s.out_height());
  const int64_t computed = round_up(rows * s.padded_width(), bf16x3_side);
  const int64_t pixels =
      computed + (s.kernel_height - 1) * s.padded_width() + s.kernel_width - 1;
  image_bytes = align_up(pixels * s.channels * number_bytes);
  const int64_t fair = ceil_div(s.images, threads);
  images = rows < s.out_height() ? 1 : std::clamp<int64_t>(most_unit / image_bytes, 1, fair);
  panels = ceil_div(s.outputs, bf16x3_side);
  const int64_t panel_bytes = s.taps() * s.channels * bf16x3_side * number_bytes;
  in_block = std::clamp<int64_t>(most_weights / panel_bytes, 1, panels);
  weight_bytes = align_up(in_block * panel_bytes);
}

Prepared bf16x3_convolution(const ConvProblem& p, RestOfOutputs rest) {
  const Call& call = *p.call;
  const Bf16x3Convolution s = shape_of(p);
  const Bf16x3Units units(s, call.threads);
  const bool is_forward = p.is(ConvProblem::Direction::forward);
  const bool is_packed = p.weights != ConvProblem::Weights::plain;
  const bool has_bias = is_forward && call.has_in(2);
  const bool relu = is_packed && call.attrs().get_string(ir::attr::activation) == "relu";
  const auto run = [=, rest = std::move(rest)](const Args& args) {
    const Bf16x3Data data{args.in<float>(0), args.in<float>(is_forward ? 1 : 2),
                          has_bias ? args.in<float>(2) : nullptr,
                          is_packed ? args.in<float>(4) : nullptr, args.out<float>(0),
                          args.scratch, is_packed ? args.in<float>(3) : nullptr, relu};
    const int64_t computed = bf16x3_convolve(s, units, data, args.threads);
    if (computed < s.outputs) rest(args, computed);
  };
  return {run, scratch_bytes(units, call.threads)};
}

}  // namespace poptorch::kernels
