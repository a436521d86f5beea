// Convolutions with weights that are packed for oneDNN (conv/packed.h): their form is oneDNN's
// choice; their bytes lie in planned memory like any other value's.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <map>
#include <mutex>

#include "kernels/aten/call.h"
#include "kernels/aten/convolution.h"
#include "kernels/conv/packed.h"
#include "ops/layout.h"
#include "support/error.h"

// Exported by torch, declared by no header of it. Weak: without them weights stay as they are.
namespace at::native {
[[gnu::weak]] void* data_ptr_from_mkldnn(const at::Tensor& packed);
[[gnu::weak]] at::Tensor mkldnn_tensor_from_data_ptr(void* memory, at::IntArrayRef sizes,
                                                     at::ScalarType dtype, at::Device device,
                                                     const uint8_t* description, int64_t bytes);
}  // namespace at::native

namespace poptorch::kernels {
namespace {

using aten::Tensors;
using torch::jit::Stack;
using Geometry = ConvolutionGeometry;

at::Tensor call_operator(const char* name, const char* overload, Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(stack);
  return stack.at(0).toTensor();
}

at::Tensor pack(const at::Tensor& weight, const Geometry& g, const ir::Dims& input_size) {
  return call_operator("mkldnn::_reorder_convolution_weight", "",
                       {weight, g.padding, g.stride, g.dilation, g.groups, input_size});
}

// What oneDNN makes of weights of these sizes, in this convolution.
struct Form {
  ir::Dims weight_size;
  std::vector<uint8_t> description;  // empty: they are left as they are
  size_t bytes = 0;
};

Form as_they_are(const ir::Dims& weight_size) {
  return {weight_size, {}, static_cast<size_t>(ir::product(weight_size)) * sizeof(float)};
}

Form find_form(const Geometry& g, const ir::Dims& weight_size, const ir::Dims& input_size,
               size_t room) {
  Form form = as_they_are(weight_size);
  if (at::native::data_ptr_from_mkldnn == nullptr ||
      at::native::mkldnn_tensor_from_data_ptr == nullptr) {
    return form;
  }
  const at::Tensor packed = pack(at::zeros(weight_size), g, input_size);
  if (!packed.is_mkldnn()) return form;
  Stack stack = {packed};
  c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_nbytes", "").callBoxed(stack);
  const auto bytes = static_cast<size_t>(stack.at(0).toInt());
  if (bytes > room) return form;
  const at::Tensor description = call_operator("mkldnn::_get_mkldnn_serialized_md", "", {packed});
  const auto* begin = description.const_data_ptr<uint8_t>();
  form.description.assign(begin, begin + description.numel());
  form.bytes = bytes;
  return form;
}

// Networks repeat layers: what was found out once holds for the process.
Form form_of(const ir::Attrs& attrs, const ir::Dims& weight_size, const ir::Dims& input_size,
             int64_t room, int threads) {
  const Geometry g(attrs);
  std::string key = std::to_string(threads);
  for (const ir::Dims& dims : {g.stride, g.padding, g.dilation, {g.groups}, weight_size,
                               input_size}) {
    key += ir::Attr(dims).text();
  }
  static std::mutex mutex;
  static auto* forms = new std::map<std::string, Form>;
  const std::lock_guard lock(mutex);
  const auto found = forms->find(key);
  if (found != forms->end()) return found->second;
  const aten::CallState state(threads);
  const size_t bytes = static_cast<size_t>(room) * sizeof(float);
  return forms->emplace(key, find_form(g, weight_size, input_size, bytes)).first->second;
}

at::Tensor weight_tensor(const Form& form, void* memory) {
  if (form.description.empty()) return aten::wrap(memory, {ir::DType::f32, form.weight_size, {}});
  return at::native::mkldnn_tensor_from_data_ptr(
      memory, form.weight_size, at::kFloat, at::Device(at::kCPU), form.description.data(),
      static_cast<int64_t>(form.description.size()));
}

// An image [batch, height, width, channels] as ATen's [batch, channels, height, width]. An image of
// one channel has both orders of dimensions, and oneDNN writes its result in the order that ATen
// does not read: its strides say that channels come first.
at::Tensor channels_first(const at::Tensor& image) {
  const int64_t height = image.size(1), width = image.size(2), pixels = height * width;
  if (image.size(3) != 1) return image.permute({0, 3, 1, 2});
  return image.contiguous().as_strided({image.size(0), 1, height, width},
                                       {pixels, pixels, width, 1});
}

// The outputs from one on, by ATen, with weights as they are or in the form that is packed for
// bf16x3_convolution.
RestOfOutputs rest_of_outputs(const Call& call, bool has_products = true) {
  const bool relu = call.attrs().get_string(ir::attr::activation) == "relu";
  const ir::Dims w = call.attrs().get_ints(ir::attr::weight_size);
  // Of [outputs, inputs, height, width].
  ir::Type weight_type{call.in(1).dtype, w, {1, w[0], w[3] * w[1] * w[0], w[1] * w[0]}};
  if (is_unpacked(call)) weight_type = call.in(1);
  return [=, g = Geometry(call.attrs()), in_type = call.in(0), out_type = call.out()](
             const Args& args, int64_t first) {
    const aten::CallState state(args.threads);
    const int64_t count = w[0] - first;
    const auto of_rest = [&](const void* memory, const ir::Type& type) {
      return aten::wrap(memory, type).narrow(-1, first, count);
    };
    const at::Tensor x = channels_first(aten::wrap(args.inputs[0], in_type));
    const at::Tensor weight = aten::wrap(args.inputs[1], weight_type).narrow(0, first, count);
    const ir::Type of_outputs{out_type.dtype, {w[0]}, {}};
    at::Tensor y;
    if (has_products) {
      y = at::convolution(x, weight, {}, g.stride, g.padding, g.dilation, false, {0, 0}, g.groups);
      y = y.permute({0, 2, 3, 1});
    } else {
      y = at::zeros(of_rest(args.outputs[0], out_type).sizes());
      y += weight.mul(0).sum({1, 2, 3});  // NaN, where padding is multiplied by infinity
    }
    if (args.inputs[4] != nullptr) y *= of_rest(args.inputs[4], of_outputs);
    if (args.inputs[2] != nullptr) y += of_rest(args.inputs[2], of_outputs);
    if (args.inputs[3] != nullptr) y += of_rest(args.inputs[3], out_type);
    if (relu) y.relu_();
    of_rest(args.outputs[0], out_type).copy_(y);
  };
}

// With weights in oneDNN's form.
Prepared by_form_of_onednn(const Call& call, const std::string& wanted) {
  const bool own_relu = wanted == "relu";  // oneDNN's makes 0 of a NaN
  const std::string activation = own_relu ? "none" : wanted;
  const Form form = form_of(call.attrs(), call.attrs().get_ints(ir::attr::weight_size),
                            ops::channels_first(call.in(0)).sizes, call.in(1).numel(),
                            call.threads);
  const bool has_residual = call.has_in(3);
  const auto run = [=, g = Geometry(call.attrs()), out_type = call.out()](
                       const Args& args, const Tensors& in, Tensors& out) {
    const at::Tensor x = in[0].permute({0, 3, 1, 2});
    const at::Tensor weight = weight_tensor(form, args.inputs[1]);
    const bool has_bias = in.size() > 2 && in[2].defined();
    const c10::IValue bias = has_bias ? c10::IValue(in[2]) : c10::IValue();
    const c10::List<std::optional<at::Scalar>> scalars;
    at::Tensor y;
    if (has_residual) {
      y = aten::wrap(args.outputs[0], {out_type.dtype, in[3].sizes().vec(), {}});
      if (args.outputs[0] != args.inputs[3]) y.copy_(in[3]);
      const c10::IValue unary = activation == "none" ? c10::IValue() : c10::IValue(activation);
      y = call_operator("mkldnn::_convolution_pointwise_", "binary",
                        {y.permute({0, 3, 1, 2}), x, weight, bias, g.padding, g.stride, g.dilation,
                         g.groups, "add", at::Scalar(1.0), unary, scalars, ""});
    } else {
      y = call_operator("mkldnn::_convolution_pointwise", "",
                        {x, weight, bias, g.padding, g.stride, g.dilation, g.groups, activation,
                         scalars, ""});
    }
    out.push_back(y.permute({0, 2, 3, 1}));
  };
  Prepared convolution = aten::prepare_call(call, "packed_convolution", run, {{0, 3}, {0}});
  return own_relu ? with_activation(call, std::move(convolution), "relu") : convolution;
}

}  // namespace

Prepared pack_for_onednn(const Call& call) {
  const ir::Type type = call.in(0);
  const ir::Dims input_size = call.attrs().get_ints(ir::attr::input_size);
  const Form form =
      form_of(call.attrs(), type.sizes, input_size, call.out().numel(), call.threads);
  const auto room = static_cast<size_t>(call.out().bytes());
  const auto run = [=, g = Geometry(call.attrs()), threads = call.threads](const Args& args) {
    const aten::CallState state(threads);  // oneDNN's choice of a form depends on their number
    at::Tensor weight = aten::wrap(args.inputs[0], type).contiguous();
    const void* bytes = weight.const_data_ptr();
    if (!form.description.empty()) {
      weight = pack(weight, g, input_size);
      bytes = at::native::data_ptr_from_mkldnn(weight);
    }
    std::memcpy(args.outputs[0], bytes, form.bytes);
    std::memset(args.out<std::byte>() + form.bytes, 0, room - form.bytes);
  };
  return {run};
}

Prepared packed_by_onednn(const Call& call) {
  if (!is_left_as_it_is(call)) return by_form_of_onednn(call, onednn_activation(call));
  return {[all = rest_of_outputs(call)](const Args& args) { all(args, 0); }};
}

RestOfOutputs packed_rest(const Call& call) { return rest_of_outputs(call); }

Prepared packed_without_products(const Call& call) {
  return {[all = rest_of_outputs(call, false)](const Args& args) { all(args, 0); }};
}

}  // namespace poptorch::kernels
