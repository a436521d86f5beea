// The ops `convolution` and `convolution_backward`, by algorithms of conv/algorithms.h; those of
// PyTorch, which calls oneDNN.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <array>

#include "ir/copy.h"
#include "kernels/aten/call.h"
#include "kernels/aten/convolution.h"
#include "kernels/conv/algorithms.h"
#include "kernels/float16.h"
#include "ops/layout.h"
#include "support/error.h"
#include "support/mutant.h"

namespace poptorch::kernels {
namespace {

using Direction = ConvProblem::Direction;
using aten::Tensors;

struct Geometry : ConvolutionGeometry {
  ir::Dims output_padding;
  bool transposed;

  explicit Geometry(const ir::Attrs& attrs)
      : ConvolutionGeometry(attrs),
        output_padding(attrs.get_ints("output_padding")),
        transposed(attrs.get_bool("transposed")) {}
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

Prepared convolution(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return convolution({first.op(), call.threads});
  }
  return prepare_conv(ConvProblem::forward(call));
}
KERNEL("convolution", convolution, false, convolution)

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
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
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

// The call for some of the gradients; the other results are empty.
struct SomeGradients {
  ir::Op op;

  SomeGradients(const Call& call, const std::array<bool, 3>& mask) : op(ir::copy_apart(call.op)) {
    op.attrs.set("output_mask", ir::AttrList{mask[0], mask[1], mask[2]});
    for (size_t i = 0; i < 3; ++i) {
      if (!mask[i]) op.result(i)->type = {call.in(1).dtype, {0}, {}};
    }
  }
};

// The kernel of `sum`, over all dimensions of dy but that of the channels.
Prepared bias_gradient(const Call& call) {
  ir::Value dy = *call.op.operand(0);
  if (MUTANT(bias_gradient_is_row_major)) dy.type = {dy.type.dtype, dy.type.sizes, {}};
  ir::Dims dims{0};
  for (int64_t dim = 2; dim < dy.type.rank(); ++dim) dims.push_back(dim);
  ir::Op sum;
  sum.name = ir::op::sum;
  sum.place = call.op.place;
  sum.operands = {&dy};
  sum.attrs.set("dim", dims);
  sum.results.push_back(std::make_unique<ir::Value>(*call.op.result(2)));
  const Prepared prepared = ops::prepare({sum, call.threads});
  const auto run = [run = prepared.run](const Args& args) {
    run({args.inputs, args.outputs + 2, args.scratch, args.threads});
  };
  return {run, prepared.scratch_bytes};
}

Prepared one_after_the_other(std::vector<Prepared> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  size_t scratch_bytes = 0;
  std::string algorithm;
  for (const Prepared& part : parts) {
    scratch_bytes = std::max(scratch_bytes, part.scratch_bytes);
    if (!algorithm.empty() && !part.algorithm.empty()) algorithm += " ";
    algorithm += part.algorithm;
  }
  const auto run = [parts = std::move(parts)](const Args& args) {
    for (const Prepared& part : parts) part.run(args);
  };
  return {run, scratch_bytes, algorithm};
}

// One of the gradients that a call computes.
struct Part {
  SomeGradients one;
  Call call;
  ConvProblem problem;
  const ConvAlgorithm* row;

  Part(const Call& whole, Direction direction, bool is_upcast)
      : one(whole, {direction == Direction::data_gradient, direction == Direction::weight_gradient,
                    false}),
        call{one.op, whole.threads},
        problem(ConvProblem::gradient(call, direction, is_upcast)),
        row(&conv_algorithms().choose(problem)) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Prepared prepare() const {
    Prepared prepared = row->make(problem);
    if (row->make == upcast_convolution) return prepared;  // which has named it
    prepared.algorithm = name(prepared.algorithm.empty() ? row->name : prepared.algorithm);
    return prepared;
  }

  std::string name(std::string_view algorithm) const {
    return concat(problem.is(Direction::data_gradient) ? "dx=" : "dw=", algorithm);
  }
};

// What computes the other gradients, and that of the bias. oneDNN, with the weights' gradient, adds
// pixel after pixel for it: after 250,000 of them it is 1e-3 off.
Prepared with_bias_gradient(const Call& call, std::vector<Prepared> prepared) {
  if (call.attrs().get_bools("output_mask")[2]) prepared.push_back(bias_gradient(call));
  return one_after_the_other(std::move(prepared));
}

Prepared each_alone(const Call& call, const std::vector<std::unique_ptr<Part>>& parts) {
  std::vector<Prepared> prepared;
  for (const auto& part : parts) prepared.push_back(part->prepare());
  return with_bias_gradient(call, std::move(prepared));
}

Prepared upcast_convolution_backward(const Call& call);

Prepared upcast(const Call& call, ops::Prepare inner) {
  Prepared prepared = prepare_upcast(call, inner);
  prepared.algorithm = "upcast " + prepared.algorithm;
  return prepared;
}

// All in one call of PyTorch's, or each gradient by an algorithm of its own.
Prepared gradients(const Call& call, bool is_upcast) {
  const std::vector<bool> wanted = call.attrs().get_bools("output_mask");
  std::vector<std::unique_ptr<Part>> parts;
  if (wanted[1]) {
    parts.push_back(std::make_unique<Part>(call, Direction::weight_gradient, is_upcast));
  }
  if (wanted[0]) {
    parts.push_back(std::make_unique<Part>(call, Direction::data_gradient, is_upcast));
  }
  if (parts.empty()) return each_alone(call, parts);
  const auto& table = conv_algorithms();
  double cost = 0;
  bool is_forced = false, are_upcast = true;
  for (const auto& part : parts) {
    cost += part->row->cost(part->problem);
    is_forced = is_forced || table.is_forced(*part->row);
    are_upcast = are_upcast && part->row->make == upcast_convolution;
  }
  if (are_upcast) return upcast(call, upcast_convolution_backward);
  const SomeGradients without_bias(call, {wanted[0], wanted[1], false});
  const Call joined{without_bias.op, call.threads};
  const ConvProblem all = ConvProblem::gradient(joined, Direction::gradients, is_upcast);
  const ConvAlgorithm* joint = table.find(all);
  const bool is_joint = joint != nullptr && (table.is_forced(*joint) ||
                                             (!is_forced && joint->cost(all) <= cost));
  if (!is_joint) return each_alone(call, parts);
  Prepared prepared = joint->make(all);
  const bool is_one = parts.size() == 1 && parts[0]->row->make == onednn_convolution;
  prepared.algorithm = is_one ? parts[0]->name(parts[0]->row->name) : std::string(joint->name);
  return with_bias_gradient(call, {std::move(prepared)});
}

Prepared upcast_convolution_backward(const Call& call) { return gradients(call, true); }

Prepared convolution_backward(const Call& call) {
  if (ops::is_channels_last(call.op)) {
    const ops::ChannelsFirst first(call.op);
    return convolution_backward({first.op(), call.threads});
  }
  return gradients(call, false);
}
KERNEL("convolution_backward", convolution_backward, false, convolution_backward)

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

Prepared by_onednn(const ConvProblem& p, aten::Memory memory) {
  if (p.is(Direction::forward)) return forward_by_aten(*p.call, memory);
  return through_aten(*p.call, memory);
}

}  // namespace

Prepared onednn_convolution(const ConvProblem& p) {
  if (p.weights != ConvProblem::Weights::plain) return packed_by_onednn(*p.call);
  return by_onednn(p, aten::Memory::planned);
}

Prepared no_products_convolution(const ConvProblem& p) {
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

Prepared onednn_unplanned(const ConvProblem& p) { return by_onednn(p, aten::Memory::torchs); }

// oneDNN sums bfloat16 in f32 and rounds once, where the CPU has a unit for it. It cuts the sums of
// a gradient of weights by the number of threads: it gets one, so that bits do not depend on it.
Prepared onednn_bf16(const ConvProblem& p) {
  if (!p.is(Direction::weight_gradient)) return by_onednn(p, aten::Memory::planned);
  Prepared prepared = through_aten({p.call->op, 1});
  const auto run = [run = std::move(prepared.run)](const Args& args) {
    run({args.inputs, args.outputs, args.scratch, 1});
  };
  return {run, prepared.scratch_bytes};
}

Prepared upcast_convolution(const ConvProblem& p) {
  return upcast(*p.call, p.is(Direction::forward) ? convolution : upcast_convolution_backward);
}

}  // namespace poptorch::kernels
