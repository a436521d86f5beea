// Convolutions by oneDNN, through ATen. 1x1 ones and most gradients of weights are products of
// matrices of our own.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <array>

#include "kernels/aten_call.h"
#include "kernels/convolution_pointwise.h"
#include "kernels/convolution_weights.h"

namespace poptorch::kernels {
namespace {

using aten::Tensors;
using ops::Args;
using ops::Call;
using ops::Prepared;

struct Geometry {
  ir::Dims stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;

  explicit Geometry(const ir::Attrs& attrs)
      : stride(attrs.get_ints("stride")),
        padding(attrs.get_ints("padding")),
        dilation(attrs.get_ints("dilation")),
        output_padding(attrs.get_ints("output_padding")),
        transposed(attrs.get_bool("transposed")),
        groups(attrs.get_int("groups")) {}
};

Prepared convolution(const Call& call) {
  if (is_pointwise(call, call.in(0), call.in(1), call.out())) return pointwise_convolution(call);
  const auto run = [g = Geometry(call.attrs())](const Args&, const Tensors& in, Tensors& out) {
    const auto bias = in.size() > 2 && in[2].defined() ? std::optional(in[2]) : std::nullopt;
    out.push_back(at::convolution(in[0], in[1], bias, g.stride, g.padding, g.dilation, g.transposed,
                                  g.output_padding, g.groups));
  };
  return aten::prepare_call(call, "convolution", run);
}
KERNEL("convolution", convolution)

// torch 2.13 writes past the end of the weight gradient of such a convolution when it lies
// channels-last.
bool is_unsafe_channels_last(const ir::Type& weight, const Geometry& geometry) {
  const bool pointwise = std::all_of(weight.sizes.begin() + 2, weight.sizes.end(),
                                     [](int64_t size) { return size == 1; });
  const bool strided = std::any_of(geometry.stride.begin(), geometry.stride.end(),
                                   [](int64_t step) { return step > 1; });
  return pointwise && strided && std::min(weight.sizes[0], weight.sizes[1]) < 8;
}

Prepared through_aten(const Call& call) {
  const Geometry geometry(call.attrs());
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  const std::array<bool, 3> mask = {wanted[0], wanted[1], wanted[2]};
  const bool row_major = is_unsafe_channels_last(call.in(2), geometry);
  const ir::Dims bias_sizes = {call.in(0).sizes[1]};
  const auto run = [=, g = geometry](const Args&, const Tensors& in, Tensors& out) {
    const at::Tensor input = row_major ? in[1].contiguous() : in[1];
    const at::Tensor weight = row_major ? in[2].contiguous() : in[2];
    auto [dx, dw, db] = at::convolution_backward(in[0], input, weight, at::IntArrayRef(bias_sizes),
                                                 g.stride, g.padding, g.dilation, g.transposed,
                                                 g.output_padding, g.groups, mask);
    out = {std::move(dx), std::move(dw), std::move(db)};
  };
  return aten::prepare_call(call, "convolution_backward", run);
}

// The same call for the gradient of the input alone.
Prepared input_gradient(const Call& call) {
  ir::Op op;
  op.name = call.op.name;
  op.operands = call.op.operands;
  op.attrs = call.op.attrs;
  op.attrs.set("output_mask", ir::AttrList{true, false, false});
  for (size_t i = 0; i < 3; ++i) {
    op.results.push_back(std::make_unique<ir::Value>(*call.op.result(i)));
    if (i > 0) op.results.back()->type = {call.in(1).dtype, {0}, {}};
  }
  return through_aten({op, call.threads});
}

Prepared bias_gradient(const Call& call) {
  const ir::Type& dy = call.in(0);
  const int64_t images = dy.sizes[0], channels = dy.sizes[1];
  const int64_t pixels = dy.numel() / images / channels;
  return {[=, is_wide = dy.dtype == ir::DType::f64](const Args& args) {
    if (is_wide) {
      sum_channels(images, channels, pixels, args.in<double>(0), args.out<double>(2), args.threads);
    } else {
      sum_channels(images, channels, pixels, args.in<float>(0), args.out<float>(2), args.threads);
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

Prepared convolution_backward(const Call& call) {
  if (is_pointwise(call, call.in(1), call.in(2), call.in(0))) {
    return pointwise_convolution_backward(call);
  }
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  if (!wanted[1] || !has_patches(call)) return through_aten(call);
  std::vector<Prepared> parts = {patch_weight_gradient(call)};
  if (wanted[0]) parts.push_back(input_gradient(call));
  if (wanted[2]) parts.push_back(bias_gradient(call));
  return one_after_the_other(std::move(parts));
}
KERNEL("convolution_backward", convolution_backward)

}  // namespace
}  // namespace poptorch::kernels
