#include "kernels/conv/bf16x3.h"

#include <algorithm>

#include "kernels/conv/shape.h"
#include "kernels/gemm/bf16x3.h"
#include "ops/layout.h"
#include "support/align.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {
namespace {

int64_t number(const ir::Attrs& attrs, ir::AttrName name, size_t dim) {
  const ir::Dims values = attrs.get_ints(name);
  return values[values.size() == 1 ? 0 : dim];
}

Bf16x3Convolution forward(const Call& call) {
  const ir::Dims &x = call.in(0).sizes, &w = call.in(1).sizes;
  const int64_t channels = x[1], taps = w[2] * w[3];
  return {x[0], x[2], x[3], channels, w[0], w[2], w[3], number(call.attrs(), ir::attr::padding, 0),
          number(call.attrs(), ir::attr::padding, 1), taps * channels, 1, 0, channels};
}

// The gradient of the input is a convolution of the gradient with the kernel turned round.
Bf16x3Convolution backward(const Call& call) {
  const ir::Dims &dy = call.in(0).sizes, &w = call.in(2).sizes;
  const int64_t channels = w[1], taps = w[2] * w[3];
  return {dy[0], dy[2], dy[3], w[0], channels, w[2], w[3],
          w[2] - 1 - number(call.attrs(), ir::attr::padding, 0),
          w[3] - 1 - number(call.attrs(), ir::attr::padding, 1), 1, taps * channels,
          (taps - 1) * channels, -channels};
}

Bf16x3Convolution packed(const ir::Attrs& attrs, const ir::Dims& w, const ir::Dims& x) {
  return {x[0], x[2], x[3], x[1], w[0], w[2], w[3], number(attrs, ir::attr::padding, 0),
          number(attrs, ir::attr::padding, 1), 1, w[0], 0, w[1] * w[0]};
}

Bf16x3Convolution unpacked(const ir::Attrs& attrs, const ir::Dims& w, const ir::Dims& x) {
  const int64_t taps = w[2] * w[3];
  return {x[0], x[2], x[3], x[1], w[0], w[2], w[3], number(attrs, ir::attr::padding, 0),
          number(attrs, ir::attr::padding, 1), w[1] * taps, taps, 0, 1};
}

size_t scratch_bytes(const Bf16x3Units& units, int threads) {
  return static_cast<size_t>(units.weight_bytes + threads * units.unit_bytes());
}

// Operands `x` and `w` of the call are the images and the weights, `bias` may be absent.
Prepared prepare(const Call& call, const Bf16x3Convolution& s, size_t x, size_t w, int bias,
                 RestOfOutputs rest) {
  const Bf16x3Units units(s, call.threads);
  const auto run = [=, rest = std::move(rest)](const Args& args) {
    const float* of_bias = bias < 0 ? nullptr : args.in<float>(static_cast<size_t>(bias));
    const Bf16x3Data data{args.in<float>(x), args.in<float>(w), of_bias, nullptr,
                          args.out<float>(0), args.scratch};
    const int64_t computed = bf16x3_convolve(s, units, data, args.threads);
    if (computed < s.outputs) rest(args, computed);
  };
  return {run, scratch_bytes(units, call.threads)};
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

Prepared bf16x3_convolution(const Call& call, RestOfOutputs rest) {
  return prepare(call, forward(call), 0, 1, call.has_in(2) ? 2 : -1, std::move(rest));
}

Prepared bf16x3_input_gradient(const Call& call, RestOfOutputs rest) {
  return prepare(call, backward(call), 0, 2, -1, std::move(rest));
}

Prepared packed_bf16x3_convolution(const Call& call, RestOfOutputs rest) {
  const ir::Attrs& attrs = call.attrs();
  const ir::Dims x = ops::channels_first(call.in(0)).sizes;
  const ir::Dims w = attrs.get_ints(ir::attr::weight_size);
  const Bf16x3Convolution s = is_unpacked(call) ? unpacked(attrs, w, x) : packed(attrs, w, x);
  const Bf16x3Units units(s, call.threads);
  const bool relu = attrs.get_string(ir::attr::activation) == "relu";
  const auto run = [=, rest = std::move(rest)](const Args& args) {
    const Bf16x3Data data{args.in<float>(0), args.in<float>(1), args.in<float>(2),
                          args.in<float>(4), args.out<float>(0), args.scratch, args.in<float>(3),
                          relu};
    const int64_t computed = bf16x3_convolve(s, units, data, args.threads);
    if (computed < s.outputs) rest(args, computed);
  };
  return {run, scratch_bytes(units, call.threads)};
}

}  // namespace poptorch::kernels
