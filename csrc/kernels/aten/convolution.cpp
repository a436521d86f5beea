// What the rows of conv/library.cpp compute by: PyTorch, which calls oneDNN for most convolutions.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <array>

#include "kernels/aten/call.h"
#include "kernels/aten/convolution.h"
#include "kernels/conv/library.h"
#include "ops/layout.h"

namespace poptorch::kernels {
namespace {

using Direction = ConvProblem::Direction;
using P = const ConvProblem&;
using aten::Tensors;

struct Geometry : ConvolutionGeometry {
  ir::Dims output_padding;
  bool transposed;

  explicit Geometry(const ir::Attrs& attrs)
      : ConvolutionGeometry(attrs),
        output_padding(attrs.get_ints(ir::attr::output_padding)),
        transposed(attrs.get_bool(ir::attr::transposed)) {}
};

// One image that lies channels-last lets PyTorch copy all others into that order. Of volumes it is
// mostly the input that lies so, and the smaller one: it is copied into rows instead.
bool is_volume_in_rows(const ir::Type& pixels) {
  return pixels.rank() == 5 && pixels.is_contiguous();
}

at::Tensor in_order(const at::Tensor& image, bool in_rows) {
  return in_rows ? image.contiguous() : image;
}

Prepared forward_by_aten(const Call& call, aten::Memory memory) {
  const auto run = [g = Geometry(call.attrs()), in_rows = is_volume_in_rows(call.out(0))](
                       const Args&, const Tensors& in, Tensors& out) {
    const auto bias = in.size() > 2 && in[2].defined() ? std::optional(in[2]) : std::nullopt;
    out.push_back(at::convolution(in_order(in[0], in_rows), in[1], bias, g.stride, g.padding,
                                  g.dilation, g.transposed, g.output_padding, g.groups));
  };
  return aten::prepare_call(call, "convolution", run, {{0}, {0}}, memory);
}

// torch 2.13 writes past the end of the weight gradient of such a convolution when it lies
// channels-last.
bool is_unsafe_channels_last(const ir::Type& weight, const Geometry& geometry) {
  const bool pointwise = is_all({weight.sizes.begin() + 2, weight.sizes.end()}, 1);
  const bool strided = std::any_of(geometry.stride.begin(), geometry.stride.end(),
                                   [](int64_t step) { return step > 1; });
  return pointwise && strided && std::min(weight.sizes[0], weight.sizes[1]) < 8;
}

// A copy: what contiguous() returns unchanged may have the strides of both orders, and is then
// taken for channels-last.
at::Tensor in_rows(const at::Tensor& x) { return x.clone(at::MemoryFormat::Contiguous); }

// Whether the gradient of an image is to be computed channels-last, as the other gradient lies.
// torch goes by the image, which is not read, and by the weight, if it is the smaller one to copy.
bool is_gradient_last(const Call& call, const std::array<bool, 3>& mask) {
  const ir::Type &dy = call.in(0), &x = call.in(1);
  return mask[0] && !mask[1] && dy.rank() == 4 && !dy.is_contiguous() &&
         ops::lies_channels_last(dy) && x.span() == x.numel() &&
         (ops::lies_channels_last(call.in(2)) || call.in(2).numel() <= dy.numel());
}

// Other elements of the same memory.
at::Tensor as_if_last(const at::Tensor& x) {
  return x.as_strided(x.sizes(), c10::get_channels_last_strides_2d(x.sizes()));
}

Prepared through_aten(const Call& call, aten::Memory memory = aten::Memory::planned) {
  const Geometry geometry(call.attrs());
  const std::vector<bool> wanted = call.attrs().get_bools(ir::attr::output_mask);
  const std::array<bool, 3> mask = {wanted[0], wanted[1], false};
  const bool row_major = is_unsafe_channels_last(call.in(2), geometry);
  const bool is_last = !row_major && is_gradient_last(call, mask);
  const bool is_volume = is_volume_in_rows(call.in(0));
  const auto run = [=, g = geometry](const Args&, const Tensors& in, Tensors& out) {
    at::Tensor input = in_order(in[1], is_volume), weight = in[2];
    if (row_major) {
      input = in_rows(input);
      weight = in_rows(weight);
    } else if (is_last) {
      input = as_if_last(input);
      weight = weight.contiguous(at::MemoryFormat::ChannelsLast);
    }
    auto [dx, dw, db] =
        at::convolution_backward(in[0], input, weight, {}, g.stride, g.padding, g.dilation,
                                 g.transposed, g.output_padding, g.groups, mask);
    out = {std::move(dx), std::move(dw), std::move(db)};
  };
  // The gradient of a weight is a sum over the batch, with memory that depends on how it is cut.
  const aten::Batch batch = wanted[1] ? aten::Batch{} : aten::Batch{{0, 1}, {0}};
  return aten::prepare_call(call, "convolution_backward", run, batch, memory);
}

// An operand, by its number, and its dimension of channels.
struct Factor {
  ir::Type type;
  size_t operand;
  int64_t channels;

  // For each channel the sum of its elements times 0, as padding multiplies them: 0, or NaN.
  at::Tensor times_padding(const Args& args) const {
    const at::Tensor all = aten::wrap(args.inputs[operand], type).movedim(channels, 0);
    return all.mul(0).flatten(1).sum(1);
  }
};

// What padding alone is multiplied by: the weights, for results on the side of the pixels, or the
// pixels, for gradients of weights; none for results on the side of the image.
std::optional<Factor> factor_of_padding(const ConvProblem& p) {
  const bool is_forward = p.is(Direction::forward);
  if (p.is(Direction::weight_gradient)) return Factor{p.pixels(), p.transposed ? 1U : 0U, 1};
  if (is_forward == p.transposed) return std::nullopt;
  return Factor{p.w, is_forward ? 1U : 2U, 0};
}

Prepared by_onednn(P p, aten::Memory memory) {
  if (p.is(Direction::forward)) return forward_by_aten(*p.call, memory);
  return through_aten(*p.call, memory);
}

Prepared onednn_convolution(P p) {
  if (p.weights != ConvProblem::Weights::plain) return packed_by_onednn(*p.call);
  return by_onednn(p, aten::Memory::planned);
}

// The bias, or zeros; NaN where what padding is multiplied by is not finite.
Prepared no_products_convolution(P p) {
  if (p.weights != ConvProblem::Weights::plain) return packed_without_products(*p.call);
  const bool is_weight = p.is(Direction::weight_gradient);
  std::optional<ir::Type> bias;
  if (p.is(Direction::forward) && p.call->has_in(2)) bias = p.call->in(2);
  const auto run = [result = is_weight ? p.w : p.result(), which = is_weight ? 1 : 0, bias,
                    factor = factor_of_padding(p)](const Args& args) {
    const aten::CallState state(args.threads);
    const at::Tensor y = aten::wrap(args.outputs[which], result);
    at::Tensor of_channels = y.movedim(which == 1 ? 0 : 1, -1);
    y.zero_();
    if (factor.has_value()) of_channels += factor->times_padding(args);
    if (bias.has_value()) of_channels += aten::wrap(args.inputs[2], *bias);
  };
  return {run};
}

RestOfOutputs rest_by_onednn(P p) {
  if (p.weights != ConvProblem::Weights::plain) return packed_rest(*p.call);
  return [all = by_onednn(p, aten::Memory::torchs).run](const Args& args, int64_t) { all(args); };
}

// oneDNN sums bfloat16 in f32 and rounds once, where the CPU has a unit for it. It cuts the sums of
// a gradient of weights by the number of threads: it gets one, so that bits do not depend on it.
Prepared onednn_bf16(P p) {
  if (!p.is(Direction::weight_gradient)) return by_onednn(p, aten::Memory::planned);
  Prepared prepared = through_aten({p.call->op, 1});
  const auto run = [run = std::move(prepared.run)](const Args& args) {
    const aten::SingleThreadedCalls single;
    run({args.inputs, args.outputs, args.scratch, 1});
  };
  return {run, prepared.scratch_bytes};
}

const bool is_known = set_library_convolutions(
    {onednn_convolution, onednn_bf16, no_products_convolution, rest_by_onednn, pack_for_onednn});

}  // namespace
}  // namespace poptorch::kernels
