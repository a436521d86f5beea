#include "kernels/conv/algorithms.h"

#include <algorithm>

#include "kernels/conv/bf16/bf16_im2col.h"
#include "kernels/conv/bf16/bf16x3.h"
#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/weight_gradient/direct_weight_gradient.h"
#include "kernels/conv/few_channels.h"
#include "kernels/conv/pointwise.h"
#include "kernels/conv/reorder.h"
#include "kernels/conv/weight_gradient/weight_gradient.h"
#include "kernels/conv/winograd.h"
#include "kernels/gemm/bf16/bf16_loops.h"
#include "kernels/gemm/bf16/bf16x3.h"
#include "kernels/gemm/blocked.h"
#include "kernels/simd/isa.h"
#include "ops/layout.h"
#include "support/ceil_div.h"
#include "support/cpu/bf16_unit.h"

namespace poptorch::kernels {

namespace {

using Direction = ConvProblem::Direction;
using Weights = ConvProblem::Weights;
using P = const ConvProblem&;

// -- conditions on problems --

bool lie_last(std::initializer_list<const ir::Type*> types) {
  return std::all_of(types.begin(), types.end(),
                     [](const ir::Type* type) { return ops::lies_channels_last(*type); });
}

bool lie_in_rows(P p) {
  return p.x.is_contiguous() && p.w.is_contiguous() && p.y.is_contiguous();
}

// Of f32 images, each result of all channels, not transposed.
bool is_dense_f32(P p) {
  return p.x.dtype == ir::DType::f32 && p.x.rank() == 4 && p.groups == 1 && !p.transposed &&
         !p.is_empty();
}

bool is_plain_f32(P p) { return p.x.dtype == ir::DType::f32 && p.weights == Weights::plain; }

// Of the gradient of the input as a convolution of y: the kernel does not stand outside of it.
bool has_inner_padding(P p) {
  if (p.is(Direction::forward)) return true;
  return p.padding[0] < p.w.sizes[2] && p.padding[1] < p.w.sizes[3];
}

// Forward or the gradient of the input, by a kernel that neither strides nor spreads.
bool has_unit_steps(P p) {
  const bool is_direction = p.is(Direction::forward) || p.is(Direction::data_gradient);
  return is_direction && is_all(p.stride, 1) && is_all(p.dilation, 1) && has_inner_padding(p);
}

bool has_last_result(P p) {
  const bool is_data = p.is(Direction::forward) || p.is(Direction::data_gradient);
  return ops::lies_channels_last(is_data ? p.result() : p.w);
}

// -- costs --
//
// Times relative to oneDNN's, which are 1 for a result or a gradient, from docs/internals/
// performance_log.md. A number below 1 is for the problems that the algorithm was measured on, the
// others got `slow` or, where the figure is not known, a guess that leaves them to the rest.
constexpr double slow = 5;

double cost(bool pays, double beside_onednn) { return pays ? beside_onednn : slow; }

// -- 1x1 kernels as products of matrices --

bool is_matrix(P p) {
  const bool is_single = ConvProblem::pixels_of(p.x) == 1;
  return is_single || !p.y.is_contiguous() || !p.x.is_contiguous();
}

bool pointwise_applies(P p) {
  if (p.is(Direction::gradients) || p.weights != Weights::plain) return false;
  if (p.transposed || p.groups != 1 || p.taps() != 1 || !is_all(p.padding, 0)) return false;
  if (p.is_empty() || !p.is_bias_row) return false;
  if (!lie_last({&p.x, &p.w, &p.y}) && !lie_in_rows(p)) return false;
  if (!ir::is_half(p.x.dtype)) return true;
  return is_matrix(p) && has_half_products(p);
}

// Of a few pixels only, a product of matrices has nothing to gain.
double pointwise_cost(P p) {
  if (ir::is_half(p.x.dtype)) return p.x.dtype == ir::DType::bf16 && bf16_loops_pay() ? 0.2 : 0.5;
  const int64_t pixels = ConvProblem::pixels_of(p.y);
  return cost(lie_last({&p.x, &p.w, &p.y}) || pixels == 1 || pixels >= 32, 0.4);
}

Prepared pointwise(P p) {
  if (ir::is_half(p.x.dtype)) return half_pointwise(p);
  return p.is(Direction::forward) ? pointwise_convolution(p) : pointwise_gradient(p);
}

// "Convolutions of inference": 0.6 to 0.8.
bool blocked_pointwise_applies(P p) {
  return p.weights != Weights::plain && is_dense_f32(p) && p.taps() == 1 &&
         is_all(p.padding, 0) && is_scaled_product(p);
}
double blocked_pointwise_cost(P) { return 0.4; }
Prepared blocked_pointwise(P p) { return scaled_product(*p.call); }

// -- of each channel by itself --

bool depthwise_applies(P p) {
  const int64_t channels = p.x.sizes[1];
  if (p.is(Direction::gradients) || !is_plain_f32(p) || p.x.rank() != 4 || p.transposed) {
    return false;
  }
  if (p.is_empty() || channels <= 1 || p.groups != channels || p.w.sizes[0] != channels) {
    return false;
  }
  return p.is_bias_row && lie_last({&p.x, &p.w, &p.y});
}
// "Depthwise convolutions": both gradients 0.14, forward 0.66.
double depthwise_cost(P p) { return p.is(Direction::forward) ? 0.6 : 0.15; }

Prepared depthwise(P p) {
  return p.is(Direction::weight_gradient) ? depthwise_weight_gradient(p) : depthwise_convolution(p);
}

// -- of images with few channels --

bool few_channels_applies(P p) {
  if (!is_dense_f32(p) || !is_all(p.dilation, 1) || !p.is_bias_row) return false;
  if (p.is(Direction::forward)) return lie_last({&p.x, &p.y});
  return p.is(Direction::weight_gradient) && lie_last({&p.x, &p.w, &p.y}) &&
         p.w.sizes[0] % few_lanes() == 0;
}
// "Images of up to four channels": with one channel 0.23 to 0.44, the gradient 0.27; with three
// 1.1, the gradient 0.85, and less than oneDNN's packed, which makes a dry run first.
double few_channels_cost(P p) {
  const int64_t channels = p.w.sizes[1];
  const bool is_slow = channels >= 3 && p.is(Direction::forward) && p.weights == Weights::plain;
  return cost(channels <= 4 && p.w.sizes[0] >= 8, is_slow ? 1.1 : 0.45);
}

Prepared few_channels(P p) {
  return p.is(Direction::weight_gradient) ? few_weight_gradient(p) : few_convolution(p);
}

// -- on the unit for products of bfloat16 matrices (AMX) --

bool bf16x3_applies(P p) {
  if (!is_dense_f32(p) || !has_unit_steps(p) || p.taps() == 1 || !has_bf16x3_gemm()) {
    return false;
  }
  if (p.result().sizes[1] % 16 != 0 || p.source().sizes[1] % 32 != 0) return false;
  if (!lie_last({&p.x, &p.y}) || !p.is_bias_row) return false;
  if (p.weights == Weights::plain) return ops::lies_channels_last(p.w);
  return p.weights == Weights::packed || p.taps() <= most_taps;
}

// "Convolutions without im2col": 0.56 to 0.7 where there is enough to multiply with what is
// packed, and few of the pixels that are computed lie beyond the result's width. Each number of the
// image is cut into parts for all outputs and taps, each weight for all pixels.
double bf16x3_cost(P p) {
  constexpr int64_t least_side = 32, least_depth = 256, least_work = int64_t{1} << 22;
  const ir::Dims &result = p.result().sizes, &source = p.source().sizes;
  const int64_t padded_width = result[3] + p.w.sizes[3] - 1;
  const int64_t pixels = result[2] * result[3], depth = source[1] * p.taps();
  const int64_t computed = round_up(result[2] * padded_width, bf16x3_side);
  const auto uses_of_pixel = static_cast<double>(result[1] * p.taps());
  const auto uses_of_weight = static_cast<double>(std::max<int64_t>(p.image_count() * pixels, 1));
  const double cutting = bf16x3_number_cost * (1 / uses_of_pixel + 1 / uses_of_weight);
  return cost(result[1] >= least_side && depth >= least_depth && 3 * pixels >= 2 * computed &&
                  p.image_count() * pixels * result[1] * depth >= least_work,
              0.5 + cutting);
}

Prepared bf16x3(P p) {
  return bf16x3_convolution(p, conv_algorithms().row("onednn").make.rest(p));
}

// -- 3x3 kernels by fewer products --

bool winograd_applies(P p) {
  constexpr int64_t block = 16;  // whole vectors, whatever the instruction set
  return is_dense_f32(p) && has_unit_steps(p) && p.w.sizes[2] == 3 && p.w.sizes[3] == 3 &&
         lie_last({&p.x, &p.y}) && p.is_bias_row && p.result().sizes[1] % block == 0 &&
         p.source().sizes[1] % block == 0;
}

// "3x3 convolutions by fewer products": 0.65 to 0.97 for an inference, where there are tiles enough
// for the weights to be transformed.
double winograd_cost(P p) {
  constexpr int64_t least_tiles = 64;
  const ir::Dims& result = p.result().sizes;
  const int64_t tiles = p.image_count() * ((result[2] + 1) / 2) * ((result[3] + 1) / 2);
  return cost(tiles >= least_tiles, 0.7);
}

// -- gradients of weights --

// Of images or sequences that lie channels-last, each result of all channels.
bool is_dense_last(P p) {
  return p.is(Direction::weight_gradient) && p.x.rank() <= 4 && p.groups == 1 && !p.transposed &&
         !p.is_empty() && lie_last({&p.x, &p.w, &p.y});
}

bool direct_applies(P p) {
  const bool has_loops =
      p.x.dtype == ir::DType::f32 || (p.x.dtype == ir::DType::bf16 && computes_bf16());
  return has_loops && is_dense_last(p);
}

// "Gradients of weights by tiles": 0.45 to 1.05, compared with products by loops of our own, with
// channels that fill vectors. For bfloat16 it takes 0.35 to 0.85 of the time of bf16_im2col; for
// 1x1 kernels, which see no number twice, 0.9 to 3.6 times as long.
double direct_cost(P p) {
  const bool is_bf16 = p.x.dtype == ir::DType::bf16;
  const int64_t channels = p.x.sizes[1], lanes = direct_columns(p.x.dtype) / 2;
  const int64_t least_channels = is_bf16 ? lanes : 32;
  const bool pays = is_bf16 ? bf16_loops_pay() && p.taps() > 1
                            : simd::isa() != simd::Isa::base && gemm_by() == "loops";
  const bool fills_vectors = 4 * channels >= 3 * (round_up(channels, lanes));
  return cost(pays && channels >= least_channels && fills_vectors, is_bf16 ? 0.2 : 0.6);
}

bool im2col_last_applies(P p) { return is_dense_last(p) && p.dilation.back() == 1; }
bool im2col_rows_applies(P p) {
  return p.is(Direction::weight_gradient) && p.x.rank() <= 4 && !p.is_empty() && lie_in_rows(p);
}
bool im2col_applies(P p) {
  const bool is_float = p.x.dtype == ir::DType::f32 || p.x.dtype == ir::DType::f64;
  return is_float && (im2col_last_applies(p) || im2col_rows_applies(p));
}

// oneDNN is slow at few pixels in relation to the channels.
bool has_few_pixels(P p) {
  return p.image_count() * ConvProblem::pixels_of(p.pixels()) < p.pixels().sizes[1];
}

// Runs of memory are long from 16 channels on. oneDNN is slow at strides, and compared with AVX2's
// products.
double im2col_last_cost(P p) {
  constexpr int64_t least_channels = 16;
  const bool pays = simd::isa() < simd::Isa::avx512 || p.is_strided() || has_few_pixels(p);
  return pays && p.x.sizes[1] >= least_channels ? 0.6 : 3;
}
// "Gradients of weights of sequences": 1.05 to 2.9, but for few pixels. Of fewer rows products of
// matrices are too thin.
double im2col_rows_cost(P p) {
  if (p.pixels().sizes[1] / p.groups < 8) return slow;
  return has_few_pixels(p) ? 0.85 : 1.5;
}

bool is_last_cheaper(P p) {
  if (!im2col_last_applies(p)) return false;
  return !im2col_rows_applies(p) || im2col_last_cost(p) <= im2col_rows_cost(p);
}
double im2col_cost(P p) { return is_last_cheaper(p) ? im2col_last_cost(p) : im2col_rows_cost(p); }
Prepared im2col(P p) {
  return is_last_cheaper(p) ? im2col_weight_gradient_last(p) : im2col_weight_gradient(p);
}

// -- operands in another order --

bool reorder_applies(P p) {
  const bool is_float = p.x.dtype == ir::DType::f32 || p.x.dtype == ir::DType::f64;
  if (!is_float || p.is(Direction::gradients) || p.weights != Weights::plain || p.transposed) {
    return false;
  }
  return !p.is_empty() && !p.sees_padding_alone() && has_last_result(p) && has_other_order(p);
}

// For oneDNN, too: our copies take 0.3 to 0.7 of the time of PyTorch's.
double reorder_cost(P p) {
  constexpr double beside_pytorch = 0.6;
  const ConvProblem copied = reordered(p);
  const auto& table = conv_algorithms();
  return table.cost(*table.cheapest(copied), copied) + beside_pytorch * copy_cost(p);
}

// -- 16-bit floats --

// Gradients of weights take 0.6 to 0.8 of oneDNN's time on all threads, results of few pixels 0.75
// to 0.9, others 1.05 to 1.2. Of images with few channels runs of im2col are short.
double bf16_im2col_cost(P p) {
  constexpr int64_t few_pixels = 256;
  if (!bf16_loops_pay()) return slow;
  if (p.w.sizes[1] <= 4) return 1.5;
  const bool has_few = p.is(Direction::forward) &&
                       p.image_count() * ConvProblem::pixels_of(p.y) <= few_pixels;
  return p.is(Direction::weight_gradient) || has_few ? 0.25 : 0.35;
}

bool upcast_applies(P p) { return !p.is(Direction::gradients) && ir::is_half(p.x.dtype); }
double upcast_cost(P) { return 1; }

CONVOLUTION("pointwise", "1x1 kernels as products of matrices", pointwise_applies, pointwise_cost,
            {pointwise})
CONVOLUTION("blocked_pointwise", "the same for inference, with scale, bias, residual and relu",
            blocked_pointwise_applies, blocked_pointwise_cost, {blocked_pointwise})
CONVOLUTION("depthwise", "loops over vectors of channels, each by itself", depthwise_applies,
            depthwise_cost, {depthwise})
CONVOLUTION("few_channels", "loops over vectors of outputs", few_channels_applies,
            few_channels_cost, {few_channels})
CONVOLUTION("bf16x3_convolution", "implicit GEMM of sums of three bfloat16 parts (AMX)",
            bf16x3_applies, bf16x3_cost, {bf16x3, WeightForm::by_tap}, false, /*is_unit=*/true)
CONVOLUTION("winograd", "3x3 kernels by Winograd's F(2x2, 3x3)", winograd_applies, winograd_cost,
            {winograd})
CONVOLUTION("direct_weight_gradient", "gradients of weights by register tiles, without im2col",
            direct_applies, direct_cost, {direct_weight_gradient})
CONVOLUTION("im2col", "gradients of weights by im2col and GEMM, strip by strip", im2col_applies,
            im2col_cost, {im2col})
CONVOLUTION("bf16_im2col", "bfloat16 products of im2col, for AVX512-BF16", bf16_im2col_applies,
            bf16_im2col_cost, {bf16_im2col}, false, /*is_unit=*/true)
CONVOLUTION("upcast", "16-bit tensors as float32, by another algorithm", upcast_applies,
            upcast_cost, {upcast_convolution})
CONVOLUTION("reorder", "copies of operands that lie channels-last, by another algorithm",
            reorder_applies, reorder_cost, {reordered_convolution})

}  // namespace

AlgorithmTable<ConvProblem, ConvMethod>& conv_algorithms() {
  static AlgorithmTable<ConvProblem, ConvMethod> table{"conv", {}, {measuring_key, conv_trials}};
  return table;
}

// A number of an image takes as long as 20 products.
double copy_cost(P p) {
  constexpr double products = 20;
  const ir::Type& image = p.is(Direction::data_gradient) ? p.y : p.x;
  if (!has_last_result(p) || ops::lies_channels_last(image) || p.is_empty()) return 0;
  const auto work = static_cast<double>(p.pixels().numel() * (p.w.numel() / p.w.sizes[0]));
  return products * static_cast<double>(image.numel()) / work;
}

Prepared prepare_conv(P problem) {
  const auto choice = conv_algorithms().chosen(problem);
  Prepared prepared = choice.row->make.prepare(problem);
  // An upcast names what is within it, too.
  if (prepared.algorithm.empty()) prepared.algorithm = choice.text();
  return prepared;
}

}  // namespace poptorch::kernels
