// Convolutions of one to three spatial dimensions, transposed or not, and their gradients.
#include "ops/layout.h"
#include "ops/work.h"
#include "support/ceil_div.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

// An attribute with one number for each spatial dimension; a single number stands for all.
ir::Dims spatial(const InferInput& in, ir::AttrName name, int64_t dims) {
  ir::Dims values = in.attrs().get_ints(name);
  if (values.size() == 1) values.resize(static_cast<size_t>(dims), values[0]);
  USER_CHECK(static_cast<int64_t>(values.size()) == dims, "[", in.op.name, "] ", name, " has ",
             values.size(), " numbers for ", dims, " spatial dimensions. Give one for each.");
  return values;
}

// Weights and bias of 16-bit images may be f32: those that batch norm was put into are not rounded.
bool fits(const ir::Type& parameter, const ir::Type& input) {
  return parameter.dtype == input.dtype ||
         (ir::is_half(input.dtype) && parameter.dtype == ir::DType::f32);
}

void check_shapes(const InferInput& in, const ir::Type& input, const ir::Type& weight) {
  const std::string where = concat("[", in.op.name, "] ");
  USER_CHECK(input.rank() >= 3 && input.rank() <= 5, where, "input ", input.text(), " has ",
             input.rank(), " dimensions, expected 3 to 5. Use [batch, channels, spatial...].");
  USER_CHECK(weight.rank() == input.rank(), where, "input ", input.text(), " has ", input.rank(),
             " dimensions, weight ", weight.text(), " has ", weight.rank(), ". Make them equal.");
  USER_CHECK(fits(weight, input), where, "dtypes differ: input ", input.text(),
             ", weight ", weight.text(), ". Cast one of them.");
  const int64_t groups = in.attrs().get_int(ir::attr::groups);
  const bool transposed = in.attrs().get_bool(ir::attr::transposed);
  const int64_t channels = transposed ? weight.sizes[0] : weight.sizes[1] * groups;
  USER_CHECK(input.sizes[1] == channels, where, "input ", input.text(), " has ", input.sizes[1],
             " channels, weight ", weight.text(), " with ", groups, " groups takes ", channels,
             ". Make them equal.");
  USER_CHECK(groups > 0 && weight.sizes[0] % groups == 0, where, "weight ", weight.text(), " has ",
             weight.sizes[0], " channels for ", groups, " groups. Use a multiple of the groups.");
}

ir::Dims output_sizes(const InferInput& in, const ir::Type& input, const ir::Type& weight) {
  check_shapes(in, input, weight);
  const int64_t dims = input.rank() - 2;
  const ir::Dims stride = spatial(in, ir::attr::stride, dims),
                 padding = spatial(in, ir::attr::padding, dims),
                 dilation = spatial(in, ir::attr::dilation, dims),
                 output_padding = spatial(in, ir::attr::output_padding, dims);
  const bool transposed = in.attrs().get_bool(ir::attr::transposed);
  ir::Dims sizes = {input.sizes[0], transposed
                                        ? weight.sizes[1] * in.attrs().get_int(ir::attr::groups)
                                        : weight.sizes[0]};
  for (size_t i = 0; i < static_cast<size_t>(dims); ++i) {
    USER_CHECK(stride[i] > 0 && dilation[i] > 0 && padding[i] >= 0, "[", in.op.name, "] stride ",
               stride[i], ", dilation ", dilation[i], ", padding ", padding[i],
               " in spatial dimension ", i, ". Stride and dilation start at 1, padding at 0.");
    const int64_t reach = dilation[i] * (weight.sizes[i + 2] - 1) + 1;
    const int64_t extent = input.sizes[i + 2];
    const int64_t size =
        transposed ? (extent - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i]
                   : (extent + 2 * padding[i] - reach) / stride[i] + 1;
    USER_CHECK(transposed ? size > 0 : extent + 2 * padding[i] >= reach, "[", in.op.name,
               "] the kernel spans ", reach, " elements, the padded input has ",
               extent + 2 * padding[i], " in spatial dimension ", i,
               ". Use a larger input or more padding.");
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<ir::Type> infer_forward(const InferInput& in) {
  const ir::Type &input = in.operand(0), &weight = in.operand(1);
  const ir::Dims sizes = output_sizes(in, input, weight);
  if (in.has(2)) {
    const ir::Type& bias = in.operand(2);
    USER_CHECK(bias.sizes == ir::Dims{sizes[1]} && fits(bias, input), "[convolution] bias ",
               bias.text(), ", expected ", ir::Type{input.dtype, {sizes[1]}, {}}.text(),
               ". Give one number for each output channel.");
  }
  return {{input.dtype, sizes, {}}};
}

std::vector<ir::Type> infer_backward(const InferInput& in) {
  const ir::Type &grad = in.operand(0), &input = in.operand(1), &weight = in.operand(2);
  const ir::Type expected{input.dtype, output_sizes(in, input, weight), {}};
  USER_CHECK(grad.sizes == expected.sizes && grad.dtype == expected.dtype,
             "[convolution_backward] gradient ", grad.text(), ", expected ", expected.text(),
             ". Give the gradient of the convolution's result.");
  const std::vector<bool> mask = in.attrs().get_bools(ir::attr::output_mask);
  USER_CHECK(mask.size() == 3, "[convolution_backward] output_mask has ", mask.size(),
             " entries, expected 3. Give one for each of input, weight and bias.");
  const auto type = [&](size_t i, const ir::Dims& sizes) {
    return ir::Type{input.dtype, mask[i] ? sizes : ir::Dims{0}, {}};
  };
  return {type(0, input.sizes), type(1, weight.sizes), type(2, {expected.sizes[1]})};
}

constexpr int64_t block = 16;  // channels side by side in packed weights

int64_t rounded(int64_t n) { return round_up(n, block); }

// Room for weights in any of the forms that they are packed into: channels padded to whole blocks.
std::vector<ir::Type> infer_pack(const InferInput& in) {
  const ir::Type& weight = in.operand(0);
  USER_CHECK(weight.rank() == 4 && weight.dtype == ir::DType::f32, "[pack_convolution] weight ",
             weight.text(), ", expected f32[outputs, inputs, height, width]. Cast or reshape it.");
  const int64_t groups = in.attrs().get_int(ir::attr::groups),
                pixels = weight.sizes[2] * weight.sizes[3];
  const int64_t outputs = weight.sizes[0] / groups, inputs = weight.sizes[1];
  const bool is_depthwise = outputs == 1 && inputs == 1;
  const int64_t room = is_depthwise ? rounded(groups) * pixels
                                    : groups * rounded(outputs) * rounded(inputs) * pixels;
  return {{weight.dtype, {room}, {}}};
}

// The operand may be the weights themselves; only then there may be a scale.
void check_unpacked(const InferInput& in, const ir::Type& weight) {
  const ir::Type& given = in.operand(1);
  const bool is_packed = given.rank() == 1 && given.dtype == ir::DType::f32;
  const bool fits = given.sizes == weight.sizes && given.dtype == weight.dtype;
  USER_CHECK(is_packed || fits, "[packed_convolution] weight ", given.text(),
             ", expected packed ones in f32 or ", weight.text(),
             ". Give weights of `weight_size`.");
  if (!in.has(4)) return;
  const ir::Type &scale = in.operand(4), expected{weight.dtype, {weight.sizes[0]}, {}};
  USER_CHECK(given.rank() == 4, "[packed_convolution] weight ", given.text(), " is packed and has "
             "a scale ", scale.text(), ". Multiply the weights before they are packed.");
  USER_CHECK(scale.sizes == expected.sizes && scale.dtype == expected.dtype,
             "[packed_convolution] scale ", scale.text(), ", expected ", expected.text(),
             ". Give one number for each output.");
}

std::vector<ir::Type> infer_packed(const InferInput& in) {
  const ir::Type input = channels_first(in.operand(0));
  ir::Attrs attrs = in.attrs();
  attrs.set(ir::attr::transposed, false);
  attrs.set(ir::attr::output_padding, ir::AttrList{0});
  ir::Op plain;
  plain.name = in.op.name;
  plain.attrs = std::move(attrs);
  const ir::Type weight{input.dtype, in.attrs().get_ints(ir::attr::weight_size), {}};
  ir::Type out = channels_last({input.dtype, output_sizes({plain}, input, weight), {}});
  out.strides.clear();
  check_unpacked(in, weight);
  if (in.has(3)) {
    USER_CHECK(in.operand(3).sizes == out.sizes, "[packed_convolution] residual ",
               in.operand(3).text(), ", expected ", out.text(), ". Give an image of these sizes.");
    const std::string& activation = in.attrs().get_string(ir::attr::activation);
    USER_CHECK(activation == "none" || activation == "relu",
               "[packed_convolution] activation is \"", activation,
               "\" with a residual, expected none or relu. Compute it apart.");
  }
  return {out};
}

// Each weight of an output channel meets each output once, or each input where it is transposed.
double product_flops(const WorkInput& in, const ir::Type& input, const ir::Type& weight,
                     const ir::Type& out) {
  const ir::Type& met = in.attrs().get_bool(ir::attr::transposed) ? input : out;
  if (weight.sizes[0] == 0) return 0;
  return 2 * numel(met) * numel(weight) / static_cast<double>(weight.sizes[0]);
}

double forward_flops(const WorkInput& in) {
  return product_flops(in, in.operand(0), in.operand(1), in.result());
}

// The gradients of the input and of the weight take as much each as the convolution.
double backward_flops(const WorkInput& in) {
  const std::vector<bool> mask = in.attrs().get_bools(ir::attr::output_mask);
  const double each = product_flops(in, in.operand(1), in.operand(2), in.operand(0));
  return (mask[0] ? each : 0) + (mask[1] ? each : 0);
}

// The weight is read for the gradient of the input, and the other way round.
double backward_bytes(const WorkInput& in) {
  const std::vector<bool> mask = in.attrs().get_bools(ir::attr::output_mask);
  return operand_bytes(in, 0) + (mask[1] ? operand_bytes(in, 1) : 0) +
         (mask[0] ? operand_bytes(in, 2) : 0) + results_bytes(in);
}

// Packed weights are padded: `weight_size` has their sizes without padding.
double packed_flops(const WorkInput& in) {
  const ir::Dims weight = in.attrs().get_ints(ir::attr::weight_size);
  if (weight[0] == 0) return 0;
  return 2 * numel(in.result()) * static_cast<double>(ir::product(weight) / weight[0]);
}

std::vector<AttrDef> shape_attrs() {
  return {{"stride", ir::AttrList{}, true},
          {"padding", ir::AttrList{}, true},
          {"dilation", ir::AttrList{}, true},
          {"transposed", false, true},
          {"output_padding", ir::AttrList{}, true},
          {"groups", 1, true},
          layout_attr};
}

std::vector<AttrDef> packing_attrs(AttrDef last) {
  return {{"stride", ir::AttrList{}, true},
          {"padding", ir::AttrList{}, true},
          {"dilation", ir::AttrList{}, true},
          {"groups", 1, true},
          std::move(last)};
}

std::vector<AttrDef> packed_attrs() {
  std::vector<AttrDef> attrs = packing_attrs({"weight_size", ir::AttrList{}, true});
  attrs.push_back({"activation", "none"});
  return attrs;
}

}  // namespace

std::vector<OpDef> convolution_ops() {
  std::vector<AttrDef> backward_attrs = shape_attrs();
  backward_attrs.insert(backward_attrs.begin(), {"bias_sizes", {}});
  backward_attrs.push_back({"output_mask", ir::AttrList{}, true});
  return {
      {.name = "convolution",
       .aten = {"aten::convolution"},
       .doc = "Convolution of [batch, channels, spatial...] with one to three spatial dimensions.",
       .operands = {"input", "weight", "bias?"},
       .attrs = shape_attrs(),
       .infer = in_any_layout<infer_forward>,
       .flops = forward_flops,
       .strided = Strided::all},
      {.name = "convolution_backward",
       .aten = {"aten::convolution_backward"},
       .doc = "Gradients of a convolution; those that `output_mask` does not ask for are empty.",
       .operands = {"grad_output", "input", "weight"},
       .results = {"grad_input", "grad_weight", "grad_bias"},
       .attrs = backward_attrs,
       .infer = in_any_layout<infer_backward>,
       .flops = backward_flops,
       .bytes = backward_bytes,
       .strided = Strided::all},
      {.name = "pack_convolution",
       .doc = "Weights [outputs, inputs, height, width] for packed_convolution, in its "
              "own order.",
       .operands = {"weight"},
       .attrs = packing_attrs({"input_size", ir::AttrList{}, true}),
       .infer = infer_pack,
       .flops = none,
       .strided = Strided::all,
       .lowered = true},
      {.name = "packed_convolution",
       .doc = "Convolution of channels-last images by weights of `weight_size`, as they are or as "
              "pack_convolution made them; then times `scale` (with weights as they are), plus "
              "`bias` and `residual`, then `activation`: none, relu, silu or hardswish, the first "
              "two with a residual.",
       .operands = {"input", "weight", "bias?", "residual?", "scale?"},
       .attrs = packed_attrs(),
       .infer = infer_packed,
       .flops = packed_flops,
       .inplace = {{3}},
       .lowered = true},
  };
}

}  // namespace poptorch::ops
