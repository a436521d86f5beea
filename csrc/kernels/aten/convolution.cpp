// Convolutions by oneDNN, through ATen. 1x1 ones and most gradients of weights are products of
// matrices of our own, and so are those that the unit for bfloat16 products is good for; those of
// each channel by itself have loops of their own.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <array>

#include "kernels/aten/call.h"
#include "kernels/aten/convolution.h"
#include "kernels/conv/bf16x3.h"
#include "kernels/conv/depthwise.h"
#include "kernels/conv/direct_weight_gradient.h"
#include "kernels/conv/few_channels.h"
#include "kernels/conv/pointwise.h"
#include "kernels/conv/shape.h"
#include "kernels/conv/weight_gradient.h"
#include "kernels/conv/winograd.h"
#include "kernels/float16.h"
#include "ops/layout.h"
#include "support/bf16_unit.h"

namespace poptorch::kernels {
namespace {

using aten::Tensors;
using ops::Args;
using ops::Call;
using ops::Prepared;

struct Geometry : ConvolutionGeometry {
  ir::Dims output_padding;
  bool transposed;

  explicit Geometry(const ir::Attrs& attrs)
      : ConvolutionGeometry(attrs),
        output_padding(attrs.get_ints("output_padding")),
        transposed(attrs.get_bool("transposed")) {}
};

Prepared forward_by_aten(const Call& call, aten::Memory memory = aten::Memory::planned) {
  const auto run = [g = Geometry(call.attrs())](const Args&, const Tensors& in, Tensors& out) {
    const auto bias = in.size() > 2 && in[2].defined() ? std::optional(in[2]) : std::nullopt;
    out.push_back(at::convolution(in[0], in[1], bias, g.stride, g.padding, g.dilation, g.transposed,
                                  g.output_padding, g.groups));
  };
  return aten::prepare_call(call, "convolution", run, {{0}, {0}}, memory);
}

Prepared convolution(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return convolution({first.op(), call.threads});
  }
  if (is_pointwise(call, call.in(0), call.in(1), call.out())) return pointwise_convolution(call);
  if (is_depthwise(call, call.in(0), call.in(1), call.out())) return depthwise_convolution(call);
  if (has_few_convolution(call)) return few_convolution(call);
  if (has_bf16x3_convolution(call)) {
    return bf16x3_convolution(call, forward_by_aten(call, aten::Memory::torchs));
  }
  if (has_winograd(call)) return winograd(call);
  return forward_by_aten(call);
}

// Not where oneDNN's results are wrong: of spread kernels, for which it reads past the image, where
// zeros need not be; of images that a kernel does not fit into without padding; of volumes.
bool is_bf16_on_unit(const Call& call, const ir::Type& image, const ir::Type& weight) {
  constexpr int64_t rank_of_volumes = 5;
  if (image.dtype != ir::DType::bf16 || !computes_bf16() || image.rank() >= rank_of_volumes ||
      !is_all(call.attrs().get_ints("dilation"), 1)) {
    return false;
  }
  for (int64_t dim = 2; dim < image.rank(); ++dim) {
    if (image.sizes[dim] < weight.sizes[dim]) return false;
  }
  return true;
}

// The larger side of a convolution, of its image and its result.
const ir::Type& image_of(const Call& call, const ir::Type& input, const ir::Type& result) {
  return call.attrs().get_bool("transposed") ? result : input;
}

// oneDNN sums bfloat16 in f32 and rounds once, where the CPU has a unit for it.
Prepared half_convolution(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return half_convolution({first.op(), call.threads});
  }
  const ir::Type& image = image_of(call, call.in(0), call.out());
  if (is_bf16_on_unit(call, image, call.in(1))) return forward_by_aten(call);
  if (has_half_pointwise(call, call.in(0), call.in(1), call.out())) {
    return half_pointwise_convolution(call);
  }
  return {};
}
KERNEL("convolution", convolution, false, half_convolution)

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

Prepared through_aten(const Call& call, aten::Memory memory = aten::Memory::planned) {
  const Geometry geometry(call.attrs());
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  const std::array<bool, 3> mask = {wanted[0], wanted[1], wanted[2]};
  const bool row_major = is_unsafe_channels_last(call.in(2), geometry);
  const ir::Dims bias_sizes = {call.in(0).sizes[1]};
  const auto run = [=, g = geometry](const Args&, const Tensors& in, Tensors& out) {
    const at::Tensor input = row_major ? in_rows(in[1]) : in[1];
    const at::Tensor weight = row_major ? in_rows(in[2]) : in[2];
    auto [dx, dw, db] = at::convolution_backward(in[0], input, weight, at::IntArrayRef(bias_sizes),
                                                 g.stride, g.padding, g.dilation, g.transposed,
                                                 g.output_padding, g.groups, mask);
    out = {std::move(dx), std::move(dw), std::move(db)};
  };
  // The gradient of a weight is a sum over the batch, with memory that depends on how it is cut.
  const aten::Batch batch = wanted[1] ? aten::Batch{} : aten::Batch{{0, 1}, {0}};
  return aten::prepare_call(call, "convolution_backward", run, batch, memory);
}

// The call for the gradient of one operand alone; the other results are empty.
struct OneGradient {
  ir::Op op;

  OneGradient(const Call& call, size_t which) {
    op.name = call.op.name;
    op.operands = call.op.operands;
    op.attrs = call.op.attrs;
    op.attrs.set("output_mask", ir::AttrList{which == 0, which == 1, which == 2});
    for (size_t i = 0; i < 3; ++i) {
      op.results.push_back(std::make_unique<ir::Value>(*call.op.result(i)));
      if (i != which) op.results.back()->type = {call.in(1).dtype, {0}, {}};
    }
  }
};

Prepared input_gradient(const Call& call) {
  const OneGradient one(call, 0);
  const Call alone{one.op, call.threads};
  if (has_split_input_gradient(alone)) {
    return split_input_gradient(alone, through_aten(alone, aten::Memory::torchs));
  }
  return has_winograd_input_gradient(alone) ? winograd_input_gradient(alone) : through_aten(alone);
}

using Prepare = Prepared (*)(const Call&);

// Loops of our own for the gradient of the weight, without patches; nullptr where there are none.
Prepare direct_weight_loops(const Call& call) {
  if (has_direct_weight_gradient(call)) return tiled_weight_gradient;
  if (has_few_weight_gradient(call)) return few_weight_gradient;
  return nullptr;
}

// With patches, too.
Prepare weight_loops(const Call& call) {
  if (const Prepare direct = direct_weight_loops(call)) return direct;
  if (has_patches_last(call)) return patch_weight_gradient_last;
  if (has_patches(call)) return patch_weight_gradient;
  return nullptr;
}

Prepared weight_gradient(const Call& call) {
  if (const Prepare own = weight_loops(call)) return own(call);
  const OneGradient one(call, 1);
  return through_aten({one.op, call.threads});
}

Prepared bias_gradient(const Call& call) {
  const ir::Type& dy = call.in(0);
  return {[s = ChannelSums(dy), is_wide = dy.dtype == ir::DType::f64](const Args& args) {
    if (is_wide) {
      sum_channels(s, args.in<double>(0), args.out<double>(2), args.threads);
    } else {
      sum_channels(s, args.in<float>(0), args.out<float>(2), args.threads);
    }
  }};
}

Prepared one_after_the_other(std::vector<Prepared> parts) {
  size_t scratch_bytes = 0;
  for (const Prepared& part : parts) scratch_bytes = std::max(scratch_bytes, part.scratch_bytes);
  const auto run = [parts = std::move(parts)](const Args& args) {
    for (const Prepared& part : parts) part.run(args);
  };
  return {run, scratch_bytes};
}

// The gradients that are wanted, each by itself.
Prepared each_alone(const Call& call, Prepare of_input, Prepare of_weight, Prepare of_bias) {
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  std::vector<Prepared> parts;
  if (wanted[1]) parts.push_back(of_weight(call));
  if (wanted[0]) parts.push_back(of_input(call));
  if (wanted[2]) parts.push_back(of_bias(call));
  return one_after_the_other(std::move(parts));
}

Prepared convolution_backward(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return convolution_backward({first.op(), call.threads});
  }
  if (is_pointwise(call, call.in(1), call.in(2), call.in(0))) {
    return pointwise_convolution_backward(call);
  }
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  if (is_depthwise(call, call.in(1), call.in(2), call.in(0)) &&
      (!wanted[0] || ops::lies_channels_last(call.out(0)))) {
    return each_alone(call, depthwise_input_gradient, depthwise_weight_gradient, bias_gradient);
  }
  const bool split = wanted[0] && has_split_input_gradient(call);
  const bool own = wanted[1] && weight_loops(call) != nullptr;
  // One call for both gradients takes less time than Winograd's form and a call for the weight's.
  const bool alone = wanted[0] && !wanted[1] && has_winograd_input_gradient(call);
  if (!split && !own && !alone) return through_aten(call);
  return each_alone(call, input_gradient, weight_gradient, bias_gradient);
}

// oneDNN cuts the sums of a gradient of weights by the number of threads: it gets one, so that bits
// do not depend on it.
Prepared bf16_weight_gradient(const Call& call) {
  const OneGradient one(call, 1);
  Prepared prepared = through_aten({one.op, 1});
  const auto run = [run = std::move(prepared.run)](const Args& args) {
    run({args.inputs, args.outputs, args.scratch, 1});
  };
  return {run, prepared.scratch_bytes};
}

Prepared half_bias_gradient(const Call& call) {
  OneGradient one(call, 2);
  one.op.operands[1] = one.op.operands[2] = nullptr;  // not read, so not to be widened
  return prepare_widened({one.op, call.threads}, bias_gradient);
}

// Whether bits would depend on the number of threads if oneDNN computed the gradient of the weight,
// and need not.
bool has_even_patches(const Call& call) {
  return call.attrs().get_bools("output_mask")[1] && can_cut_patches_last(call) &&
         !is_pointwise(call, call.in(1), call.in(2), call.in(0)) &&
         !is_depthwise(call, call.in(1), call.in(2), call.in(0));
}

Prepared even_weight_gradient(const Call& call) {
  const Prepare direct = direct_weight_loops(call);
  return direct != nullptr ? direct(call) : patch_weight_gradient_last(call);
}

Prepared even_convolution_backward(const Call& call) {
  return each_alone(call, input_gradient, even_weight_gradient, bias_gradient);
}

Prepared half_convolution_backward(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return half_convolution_backward({first.op(), call.threads});
  }
  const ir::Type& image = image_of(call, call.in(1), call.in(0));
  if (is_bf16_on_unit(call, image, call.in(2))) {
    return each_alone(call, input_gradient, bf16_weight_gradient, half_bias_gradient);
  }
  if (has_half_pointwise(call, call.in(1), call.in(2), call.in(0))) {
    std::vector<Prepared> parts = {half_pointwise_gradients(call)};
    if (call.attrs().get_bools("output_mask")[2]) parts.push_back(half_bias_gradient(call));
    return one_after_the_other(std::move(parts));
  }
  if (!has_even_patches(call)) return {};
  return prepare_widened(call, even_convolution_backward);
}
KERNEL("convolution_backward", convolution_backward, false, half_convolution_backward)

}  // namespace
}  // namespace poptorch::kernels
