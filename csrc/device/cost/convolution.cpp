// Convolutions of one to three spatial dimensions and their gradients.
#include <algorithm>

#include "device/cost/steps.h"
#include "ir/op_name.h"

namespace poptorch::device {

namespace {

int64_t entry(const ir::Dims& values, size_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

// Of a convolution that is not transposed. The first of three spatial dimensions becomes images and
// channels: no partition cuts it otherwise.
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
    if (dims - i > 2) {
      problem.batch *= out[i + 2];
      problem.in_channels *= weight[i + 2];
      continue;
    }
    problem.field[i + 2 - dims] = {.input = image[i + 2],
                                   .output = out[i + 2],
                                   .kernel = weight[i + 2],
                                   .stride = entry(stride, i),
                                   .kernel_dilation = entry(dilation, i),
                                   .is_padded = entry(padding, i) > 0};
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

std::vector<CostRow> convolution_costs() {
  return {{"convolution", convolution_cost}, {"convolution_backward", convolution_backward_cost}};
}

}  // namespace poptorch::device
