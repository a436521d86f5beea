#include "kernels/conv/problem.h"

#include "ops/layout.h"

namespace poptorch::kernels {

namespace {

ConvProblem with_geometry(const ir::Attrs& attrs, size_t rank) {
  const auto one_each = [&](ir::AttrName name) {
    ir::Dims values = attrs.get_ints(name);
    if (values.size() == 1) values.resize(rank - 2, values[0]);
    return values;
  };
  ConvProblem p;
  p.stride = one_each(ir::attr::stride);
  p.padding = one_each(ir::attr::padding);
  p.dilation = one_each(ir::attr::dilation);
  p.groups = attrs.get_int(ir::attr::groups);
  return p;
}

// Of images that lie channels-last, whose sizes have the channels second.
ir::Type images(const ir::Dims& sizes) {
  return ops::channels_first({ir::DType::f32, {sizes[0], sizes[2], sizes[3], sizes[1]}, {}});
}

ConvProblem of_packed(const ir::Attrs& attrs, const ir::Dims& x, const ir::Dims& w) {
  ConvProblem p = with_geometry(attrs, x.size());
  p.x = images(x);
  p.w = {ir::DType::f32, w, {}};
  ir::Dims y = {x[0], w[0]};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t seen = p.dilation[i] * (w[2 + i] - 1) + 1;
    y.push_back((x[2 + i] + 2 * p.padding[i] - seen) / p.stride[i] + 1);
  }
  p.y = images(y);
  p.weights = ConvProblem::Weights::packed;
  return p;
}

// Whether a tap of one of the windows along a dimension reads a pixel of the image.
bool reads_a_pixel(const ConvolutionAxis& axis) {
  for (int64_t window = 0; window < axis.to; ++window) {
    for (int64_t tap = 0; tap < axis.kernel; ++tap) {
      const int64_t at = window * axis.stride - axis.padding + tap * axis.dilation;
      if (at >= 0 && at < axis.from) return true;
    }
  }
  return false;
}

}  // namespace

bool ConvProblem::sees_padding_alone() const {
  if (is_empty()) return false;
  for (size_t from_end = 1; from_end <= stride.size(); ++from_end) {
    if (!reads_a_pixel(axis(from_end))) return true;
  }
  return false;
}

ConvolutionAxis ConvProblem::axis(size_t from_end) const {
  if (stride.size() < from_end) return {1, 1, 1, 1, 0, 1};
  const size_t dim = stride.size() - from_end;
  return {image().sizes[2 + dim], pixels().sizes[2 + dim], w.sizes[2 + dim],
          stride[dim],            padding[dim],            dilation[dim]};
}

ConvolutionShape ConvProblem::shape() const {
  return {x.sizes[0], x.sizes[1], y.sizes[1], axis(2), axis(1)};
}

ConvProblem ConvProblem::forward(const Call& call) {
  ConvProblem p = with_geometry(call.attrs(), call.in(0).sizes.size());
  p.x = call.in(0);
  p.w = call.in(1);
  p.y = call.out();
  p.transposed = call.attrs().get_bool(ir::attr::transposed);
  p.is_bias_row = !call.has_in(2) || call.in(2).is_contiguous();
  p.call = &call;
  return p;
}

ConvProblem ConvProblem::gradient(const Call& call, Direction direction, bool is_upcast) {
  ConvProblem p = with_geometry(call.attrs(), call.in(0).sizes.size());
  p.direction = direction;
  p.x = direction == Direction::data_gradient ? call.out(0) : call.in(1);
  p.w = direction == Direction::weight_gradient ? call.out(1) : call.in(2);
  p.y = call.in(0);
  p.transposed = call.attrs().get_bool(ir::attr::transposed);
  const std::vector<bool> wanted = call.attrs().get_bools(ir::attr::output_mask);
  p.wants_data = wanted[0];
  p.wants_weight = wanted[1];
  p.is_upcast = is_upcast;
  p.call = &call;
  return p;
}

ConvProblem ConvProblem::packed(const Call& call) {
  const ir::Attrs& attrs = call.attrs();
  ConvProblem p = of_packed(attrs, ops::channels_first(call.in(0)).sizes,
                            attrs.get_ints(ir::attr::weight_size));
  if (is_unpacked(call)) p.weights = Weights::unpacked;
  p.call = &call;
  return p;
}

ConvProblem ConvProblem::packing(const Call& call) {
  return of_packed(call.attrs(), call.attrs().get_ints(ir::attr::input_size), call.in(0).sizes);
}

}  // namespace poptorch::kernels
