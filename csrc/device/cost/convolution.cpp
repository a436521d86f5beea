// Convolutions of one to three spatial dimensions and their gradients.
#include <algorithm>

#include "device/cost/steps.h"
#include "ir/op_name.h"
#include "support/error.h"

namespace poptorch::device {

namespace {

int64_t entry(const ir::Dims& values, size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

struct Dimension {
  int64_t input, output, kernel, stride, padding, dilation;
};

// The first of three spatial dimensions becomes images and channels: no partition cuts it
// otherwise. `from_end`: 1 is the last dimension.
void add_dimension(Problem& problem, size_t from_end, const Dimension& dim) {
  if (from_end > 2) {
    problem.batch *= dim.output;
    problem.in_channels *= dim.kernel;
    return;
  }
  problem.field[2 - from_end] = {.input = dim.input,
                                 .output = dim.output,
                                 .kernel = dim.kernel,
                                 .stride = dim.stride,
                                 .kernel_dilation = dim.dilation,
                                 .is_padded = dim.padding > 0};
}

// Of a convolution that is not transposed.
Problem problem_of(const Call& call, const ir::Dims& image, const ir::Dims& weight,
                   const ir::Dims& out, int64_t item_bytes) {
  Problem problem;
  problem.is_layer = true;
  problem.item_bytes = item_bytes;
  problem.partial_bytes = item_bytes == 4 ? 4 : call.settings.partial_bytes;
  problem.groups = call.attrs().get_int(ir::attr::groups);
  problem.batch = image[0];
  problem.in_channels = image[1] / problem.groups;
  problem.out_channels = out[1] / problem.groups;
  const ir::Dims stride = call.attrs().get_ints(ir::attr::stride);
  const ir::Dims padding = call.attrs().get_ints(ir::attr::padding);
  const ir::Dims dilation = call.attrs().get_ints(ir::attr::dilation);
  const size_t dims = image.size() - 2;
  for (size_t i = 0; i < dims; ++i) {
    add_dimension(problem, dims - i,
                  {image[i + 2], out[i + 2], weight[i + 2], entry(stride, i), entry(padding, i),
                   entry(dilation, i)});
  }
  return problem;
}

struct Passes {
  Problem forward, backward, weight_update;
};

// A transposed convolution computes the gradient of the one from its result to its input.
Passes passes_of(const Call& call, const ir::Type& image, const ir::Type& weight,
                 const ir::Type& out) {
  const int64_t item = ir::item_bytes(image.dtype);
  const bool is_transposed = call.attrs().get_bool(ir::attr::transposed);
  const Problem plain = is_transposed
                            ? problem_of(call, out.sizes, weight.sizes, image.sizes, item)
                            : problem_of(call, image.sizes, weight.sizes, out.sizes, item);
  if (!is_transposed) return {plain, backward_of(plain), weight_update_of(plain)};
  return {backward_of(plain), plain, weight_update_of(plain)};
}

bool is_empty(const ir::Type& image, const ir::Type& weight) {
  return image.numel() == 0 || weight.numel() == 0;
}

Cost convolution_cost(const Call& call) {
  Steps steps(call);
  const ir::Type &image = call.operand(0), &weight = call.operand(1), &out = call.result();
  if (is_empty(image, weight)) return steps.cost;
  steps.add_product(passes_of(call, image, weight, out).forward);
  if (call.has(2)) steps.add_elementwise(call.share(out), ir::item_bytes(out.dtype), 2);
  return steps.cost;
}

Cost convolution_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type &grad = call.operand(0), &image = call.operand(1), &weight = call.operand(2);
  if (is_empty(image, weight)) return steps.cost;
  const Passes passes = passes_of(call, image, weight, grad);
  const std::vector<bool> mask = call.attrs().get_bools(ir::attr::output_mask);
  if (mask[0]) steps.add_product(passes.backward);
  if (mask[1]) steps.add_product(passes.weight_update);
  if (mask[2]) {
    const auto channels = static_cast<double>(grad.sizes[1]);
    const double depth = call.share(grad) / std::min(channels, call.share(grad));
    steps.add_reduction(std::min(channels, call.share(grad)), depth,
                        ir::item_bytes(grad.dtype));
  }
  return steps.cost;
}

}  // namespace

Problem convolution_of(const ir::Dims& sizes) {
  constexpr size_t head = 5, each = 6;
  Problem forward{.batch = sizes[2],
                  .groups = sizes[1],
                  .in_channels = sizes[3],
                  .out_channels = sizes[4],
                  .item_bytes = 2,
                  .partial_bytes = 2,
                  .is_layer = true};
  const size_t dims = (sizes.size() - head) / each;
  for (size_t i = 0; i < dims; ++i) {
    const int64_t* at = sizes.data() + head + i * each;
    add_dimension(forward, dims - i, {at[0], at[1], at[2], at[3], at[4], at[5]});
  }
  switch (static_cast<Pass>(sizes[0])) {
    case Pass::forward: return forward;
    case Pass::backward: return backward_of(forward);
    case Pass::weight_update: return weight_update_of(forward);
  }
  throw_internal_error(__FILE__, __LINE__, "conv_sizes", "not a pass");
}

std::vector<CostRow> convolution_costs() {
  return {{"convolution", convolution_cost}, {"convolution_backward", convolution_backward_cost}};
}

}  // namespace poptorch::device
