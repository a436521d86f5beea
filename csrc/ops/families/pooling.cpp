// Rows of pooling and resampling of images [C, H, W] or [N, C, H, W].
#include "ops/families/pooling.h"

#include "ops/families/indexing.h"
#include "ops/families/shape.h"
#include "ops/layout.h"
#include "ops/work.h"
#include "support/ceil_div.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

void check_image(const InferInput& in, const Type& x) {
  USER_CHECK(x.rank() == 3 || x.rank() == 4, "[", in.op.name, "] the image is ", x.text(),
             ", sizes [C, H, W] or [N, C, H, W] are needed. Reshape it.");
  USER_CHECK(is_float(x.dtype), "[", in.op.name, "] the image is ", x.text(),
             ", a float dtype is needed. Convert it.");
}

// The last two sizes replaced.
Dims image_sizes(const Type& x, int64_t h, int64_t w) {
  Dims sizes = x.sizes;
  sizes[sizes.size() - 2] = h;
  sizes[sizes.size() - 1] = w;
  return sizes;
}

void finish_axis(const InferInput& in, const char* name, WindowAxis& axis) {
  USER_CHECK(axis.kernel > 0 && axis.stride > 0 && axis.dilation > 0, "[", in.op.name, "] kernel ",
             axis.kernel, ", stride ", axis.stride, " and dilation ", axis.dilation, " of the ",
             name, " must be at least 1. Correct them.");
  const int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
  USER_CHECK(axis.padding >= 0 && axis.padding <= reach / 2, "[", in.op.name, "] the padding ",
             axis.padding, " of the ", name, " must be 0 to ", reach / 2,
             ", half the window. Pad less.");
  const bool ceil = in.attrs().get_bool(ir::attr::ceil_mode, false);
  const int64_t room = axis.size + 2 * axis.padding - reach + (ceil ? axis.stride - 1 : 0);
  axis.out = room < 0 ? 0 : room / axis.stride + 1;
  // No window starts in the padding behind the image.
  if (ceil && (axis.out - 1) * axis.stride >= axis.size + axis.padding) --axis.out;
  USER_CHECK(axis.out >= 1, "[", in.op.name, "] the ", name, " ", axis.size, " with padding ",
             axis.padding, " is smaller than the window of ", reach, ". Use a smaller window.");
}

Types infer_max_pool(const InferInput& in) {
  const Type& x = in.operand(0);
  const Pooling pool = pooling(in, x);
  const Dims sizes = image_sizes(x, pool.h.out, pool.w.out);
  const DType positions = index_dtype(in, pool.h.size * pool.w.size);
  if (!in.attrs().get_bool(ir::attr::keep, true)) {
    return {{x.dtype, sizes, {}}, {positions, {0}, {}}};
  }
  if (!in.attrs().get_bool(ir::attr::in_window, false)) {
    return {{x.dtype, sizes, {}}, {positions, sizes, {}}};
  }
  const int64_t entries = pool.h.kernel * pool.w.kernel;
  USER_CHECK(entries <= most_in_window, "[max_pool2d] the window has ", entries,
             " entries, a byte counts ", most_in_window, ". Leave out in_window.");
  return {{x.dtype, sizes, {}}, {DType::u8, sizes, {}}};
}

Types infer_avg_pool(const InferInput& in) {
  const Type& x = in.operand(0);
  const Pooling pool = pooling(in, x);
  USER_CHECK(in.attrs().maybe_int(ir::attr::divisor_override).value_or(1) != 0,
             "[avg_pool2d] divisor_override is 0. Use another number or none.");
  return {{x.dtype, image_sizes(x, pool.h.out, pool.w.out), {}}};
}

// Operand `i` must have these sizes.
void check_sizes(const InferInput& in, size_t i, const char* name, const Dims& sizes) {
  USER_CHECK(in.operand(i).sizes == sizes, "[", in.op.name, "] ", name, " is ",
             in.operand(i).text(), ", the sizes ", ir::Attr(sizes).text(),
             " are needed. Give what the forward op returned for this image.");
}

Type infer_pool_gradient(const InferInput& in, const Type& x) {
  const Pooling pool = pooling(in, x);
  check_sizes(in, 0, "grad_output", image_sizes(x, pool.h.out, pool.w.out));
  return {x.dtype, x.sizes, {}};
}

Types infer_avg_pool_backward(const InferInput& in) {
  return {infer_pool_gradient(in, in.operand(1))};
}

Types infer_max_pool_backward(const InferInput& in) {
  const bool has_size = !ints_of(in.attrs(), ir::attr::image_size).empty();
  USER_CHECK(has_size != in.has(1), "[max_pool2d_backward] ",
             has_size ? "both the image and image_size are" : "neither the image nor image_size is",
             " given. Give one of them.");
  const Type x = pooled_image(in);
  const Type gradient = infer_pool_gradient(in, x);
  check_sizes(in, 2, "indices", in.operand(0).sizes);
  if (in.attrs().get_bool(ir::attr::in_window, false)) {
    USER_CHECK(in.operand(2).dtype == DType::u8, "[max_pool2d_backward] indices are ",
               in.operand(2).text(), ", in_window says bytes. Give those of max_pool2d.");
  } else {
    check_index(in, 2);
  }
  return {gradient};
}

// The attribute output_size, each at least 1.
std::pair<int64_t, int64_t> output_size(const InferInput& in) {
  const auto [h, w] = pair_of(in, ir::attr::output_size, 0);
  USER_CHECK(h >= 1 && w >= 1, "[", in.op.name, "] output_size is [", h, ", ", w,
             "], both must be at least 1. Give [height, width].");
  return {h, w};
}

// Only the first dimension, the batch, may be.
void check_not_empty(const InferInput& in, const Type& x) {
  USER_CHECK(x.sizes[x.rank() - 2] > 0 && x.sizes[x.rank() - 1] > 0, "[", in.op.name, "] ",
             x.text(), " has no pixels. Give an image with height and width of at least 1.");
  USER_CHECK(x.rank() < 4 || x.sizes[1] > 0, "[", in.op.name, "] ", x.text(),
             " has no channels. Give an image with at least 1.");
}

Types infer_resized(const InferInput& in) {
  const Type& x = in.operand(0);
  check_image(in, x);
  const auto [h, w] = output_size(in);
  check_not_empty(in, x);
  return {{x.dtype, image_sizes(x, h, w), {}}};
}

Types infer_adaptive_backward(const InferInput& in) {
  const Type& grad = in.operand(0);
  const Type& x = in.operand(1);
  check_image(in, x);
  check_image(in, grad);
  check_not_empty(in, x);
  check_sizes(in, 0, "grad_output",
              image_sizes(x, grad.sizes[grad.rank() - 2], grad.sizes[grad.rank() - 1]));
  return {{x.dtype, x.sizes, {}}};
}

Types infer_adaptive_max(const InferInput& in) {
  const Type out = infer_resized(in)[0];
  const Type& x = in.operand(0);
  const int64_t plane = x.sizes[x.rank() - 2] * x.sizes[x.rank() - 1];
  return {out, {index_dtype(in, plane), out.sizes, {}}};
}

Types infer_adaptive_max_backward(const InferInput& in) {
  check_index(in, 2);
  check_sizes(in, 2, "indices", in.operand(0).sizes);
  return infer_adaptive_backward(in);
}

Types infer_resized_backward(const InferInput& in) {
  const Type& grad = in.operand(0);
  const Type x{grad.dtype, ints_of(in.attrs(), ir::attr::input_size), {}};
  check_image(in, x);
  check_not_empty(in, x);
  const auto [h, w] = output_size(in);
  check_sizes(in, 0, "grad_output", image_sizes(x, h, w));
  return {x};
}

// One for each entry of a window, padding too. `image`: an operand of the image's type.
template <size_t image>
double window_flops(const WorkInput& in) {
  const Pooling pool = pooling(in, in.operand(image));
  return static_cast<double>(pool.planes * pool.h.out * pool.w.out * pool.h.kernel * pool.w.kernel);
}

// Entries of all windows along an axis of `size` that `out` of them share out; neighbours overlap
// where it does not divide.
int64_t shared_out(int64_t size, int64_t out) {
  int64_t entries = 0;
  for (int64_t i = 0; i < out; ++i) entries += ceil_div((i + 1) * size, out) - i * size / out;
  return entries;
}

double adaptive_flops(const Type& image, const Type& pooled) {
  const size_t w = image.sizes.size() - 1, h = w - 1;
  double planes = 1;
  for (size_t d = 0; d < h; ++d) planes *= static_cast<double>(image.sizes[d]);
  return planes * static_cast<double>(shared_out(image.sizes[h], pooled.sizes[h]) *
                                      shared_out(image.sizes[w], pooled.sizes[w]));
}

double adaptive_forward_flops(const WorkInput& in) {
  return adaptive_flops(in.operand(0), in.result());
}

double adaptive_backward_flops(const WorkInput& in) {
  return adaptive_flops(in.result(), in.operand(0));
}

const AttrDef kernel_attr = {"kernel_size", ir::AttrList{}, true};
const AttrDef stride_attr = {"stride", ir::AttrList{}};
const AttrDef padding_attr = {"padding", ir::AttrList{}};
const AttrDef dilation_attr = {"dilation", ir::AttrList{}};
const AttrDef ceil_attr = {"ceil_mode", false};
const AttrDef in_window_attr = lowered_attr("in_window", false);
const AttrDef output_size_attr = {"output_size", ir::AttrList{}, true};
const std::vector<AttrDef> avg_attrs = {kernel_attr,
                                        stride_attr,
                                        padding_attr,
                                        ceil_attr,
                                        {"count_include_pad", true},
                                        {"divisor_override", {}}};

std::vector<OpDef> pool_ops() {
  return {
      {.name = "max_pool2d",
       .aten = {"aten::max_pool2d_with_indices"},
       .doc = "Largest entry of each window and its position in the plane (row * width + column) "
              "or, as a byte, `in_window`; the first of equal ones; none unless `keep`. Without "
              "`stride` windows do not overlap.",
       .operands = {"self"},
       .results = {"out", "indices"},
       .attrs = {kernel_attr,
                 stride_attr,
                 padding_attr,
                 dilation_attr,
                 ceil_attr,
                 {"index_dtype", DType::i32},
                 in_window_attr,
                 lowered_attr("keep", true),
                 layout_attr},
       .infer = in_any_layout<infer_max_pool>,
       .flops = window_flops<0>},
      {.name = "max_pool2d_backward",
       .aten = {"aten::max_pool2d_with_indices_backward"},
       .doc = "Gradient of `max_pool2d`: each entry goes to the position that was largest. Of the "
              "image only the sizes count: `image_size`, [height, width], may stand for it.",
       .operands = {"grad_output", "self?", "indices"},
       .attrs = {kernel_attr,
                 stride_attr,
                 padding_attr,
                 dilation_attr,
                 ceil_attr,
                 lowered_attr("image_size", ir::AttrList{}),
                 in_window_attr,
                 layout_attr},
       .infer = in_any_layout<infer_max_pool_backward>,
       .flops = flops_of_operand<>,
       .bytes = bytes_without<1>},
      {.name = "avg_pool2d",
       .aten = {"aten::avg_pool2d"},
       .doc = "Mean of each window; the divisor is `divisor_override`, or the window's size with "
              "or without padding.",
       .operands = {"self"},
       .attrs = avg_attrs,
       .infer = infer_avg_pool,
       .flops = window_flops<0>},
      {.name = "avg_pool2d_backward",
       .aten = {"aten::avg_pool2d_backward"},
       .doc = "Gradient of `avg_pool2d`.",
       .operands = {"grad_output", "self"},
       .attrs = avg_attrs,
       .infer = infer_avg_pool_backward,
       .flops = window_flops<1>,
       .bytes = bytes_without<1>},
      {.name = "adaptive_avg_pool2d",
       .aten = {"aten::_adaptive_avg_pool2d"},
       .doc = "Means of output_size windows that share the image out evenly.",
       .operands = {"self"},
       .attrs = {output_size_attr},
       .infer = infer_resized,
       .flops = adaptive_forward_flops},
      {.name = "adaptive_avg_pool2d_backward",
       .aten = {"aten::_adaptive_avg_pool2d_backward"},
       .doc = "Gradient of `adaptive_avg_pool2d`.",
       .operands = {"grad_output", "self"},
       .infer = infer_adaptive_backward,
       .flops = adaptive_backward_flops,
       .bytes = bytes_without<1>},
      {.name = "adaptive_max_pool2d",
       .aten = {"aten::adaptive_max_pool2d"},
       .doc = "Largest entries of output_size windows that share the image out evenly, and their "
              "positions in the plane; the first of equal ones.",
       .operands = {"self"},
       .results = {"out", "indices"},
       .attrs = {output_size_attr, {"index_dtype", DType::i32}},
       .infer = infer_adaptive_max,
       .flops = adaptive_forward_flops},
      {.name = "adaptive_max_pool2d_backward",
       .aten = {"aten::adaptive_max_pool2d_backward"},
       .doc = "Gradient of `adaptive_max_pool2d`: each entry goes to the position that was "
              "largest.",
       .operands = {"grad_output", "self", "indices"},
       .infer = infer_adaptive_max_backward,
       .flops = flops_of_operand<>,
       .bytes = bytes_without<1>},
  };
}

// An op that resizes images, and its gradient. `more`: attributes other than sizes and scales.
std::vector<OpDef> resizing(const std::string& name, const std::string& how,
                            const std::vector<AttrDef>& more, Count flops, Count backward_flops) {
  const auto attrs = [&](std::vector<AttrDef> sizes) {
    sizes.insert(sizes.end(), more.begin(), more.end());
    sizes.push_back({"scales_h", {}});
    sizes.push_back({"scales_w", {}});
    return sizes;
  };
  return {
      {.name = name,
       .aten = {"aten::" + name},
       .doc = "The image resized to output_size, each pixel " + how,
       .operands = {"self"},
       .attrs = attrs({output_size_attr}),
       .infer = infer_resized,
       .flops = flops},
      {.name = name + "_backward",
       .aten = {"aten::" + name + "_backward"},
       .doc = "Gradient of `" + name + "`.",
       .operands = {"grad_output"},
       .attrs = attrs({output_size_attr, {"input_size", ir::AttrList{}, true}}),
       .infer = infer_resized_backward,
       .flops = backward_flops},
  };
}

// A pixel that is weighted counts two: product and sum.
std::vector<OpDef> upsample_ops() {
  const AttrDef corners = {"align_corners", false};
  return joined({
      resizing("upsample_nearest2d", "taken from the nearest one.", {}, none, flops_of_operand<>),
      resizing("upsample_bilinear2d", "weighted from four.", {corners}, flops_of_result<8>,
               flops_of_operand<0, 8>),
      resizing("upsample_bicubic2d", "weighted from 4 by 4.", {corners}, flops_of_result<32>,
               flops_of_operand<0, 32>),
  });
}

}  // namespace

std::pair<int64_t, int64_t> pair_of(const InferInput& in, ir::AttrName name, int64_t absent) {
  const Dims numbers = ints_of(in.attrs(), name);
  USER_CHECK(numbers.size() <= 2, "[", in.op.name, "] ", name, " is ", ir::Attr(numbers).text(),
             ", one or two numbers are needed. Give [height, width].");
  if (numbers.empty()) return {absent, absent};
  return {numbers.front(), numbers.back()};
}

Pooling pooling(const InferInput& in, const Type& x) {
  check_image(in, x);
  Pooling pool;
  for (int64_t d = 0; d < x.rank() - 2; ++d) pool.planes *= x.sizes[d];
  pool.h.size = x.sizes[x.rank() - 2];
  pool.w.size = x.sizes[x.rank() - 1];
  std::tie(pool.h.kernel, pool.w.kernel) = pair_of(in, ir::attr::kernel_size, 1);
  pool.h.stride = pool.h.kernel;
  pool.w.stride = pool.w.kernel;
  if (!ints_of(in.attrs(), ir::attr::stride).empty()) {
    std::tie(pool.h.stride, pool.w.stride) = pair_of(in, ir::attr::stride, 1);
  }
  std::tie(pool.h.padding, pool.w.padding) = pair_of(in, ir::attr::padding, 0);
  std::tie(pool.h.dilation, pool.w.dilation) = pair_of(in, ir::attr::dilation, 1);
  finish_axis(in, "height", pool.h);
  finish_axis(in, "width", pool.w);
  return pool;
}

Type pooled_image(const InferInput& in) {
  if (in.has(1)) return in.operand(1);
  const auto [h, w] = pair_of(in, ir::attr::image_size, 0);
  const Type& grad = in.operand(0);
  check_image(in, grad);
  return {grad.dtype, image_sizes(grad, h, w), {}};
}

std::vector<OpDef> pooling_ops() {
  return joined({pool_ops(), upsample_ops()});
}

}  // namespace poptorch::ops
