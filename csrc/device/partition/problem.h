// A convolution or matrix product as the planner sees it, and the forms that it may be computed in.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

namespace poptorch::device {

enum class Pass { forward, backward, weight_update };

// One dimension of the images. Sizes in elements.
struct Field {
  int64_t input = 1;
  int64_t output = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t kernel_dilation = 1;
  int64_t input_dilation = 1;
  bool is_padded = false;

  // Whether each output reads one input at its own place.
  bool is_plain() const {
    return kernel == 1 && stride == 1 && input_dilation == 1 && input == output && !is_padded;
  }
  // Inputs that `outputs` outputs side by side and `positions` of the kernel read.
  int64_t inputs_of(int64_t outputs, int64_t positions) const;
  auto operator<=>(const Field&) const = default;
};

// A product [M, K] x [K, N] has batch M, input channels K and output channels N; channels are those
// of one group.
struct Problem {
  int64_t batch = 1;
  int64_t groups = 1;
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  std::array<Field, 2> field;  // outer dimension first
  int64_t item_bytes = 2;      // 1: float8, 2: float16, 4: float32
  int64_t partial_bytes = 4;   // of sums between tiles
  Pass pass = Pass::forward;
  bool is_product = false;  // of matrices
  bool is_layer = false;    // its operands have layouts that other passes chose

  double macs() const;
  auto operator<=>(const Problem&) const = default;
};

// The problems of a convolution's gradients. `forward` has kernels that are not flipped.
Problem backward_of(const Problem& forward);
Problem weight_update_of(const Problem& forward);

// A form of a problem, and which of its tensors have to be put into another order for it.
struct Form {
  Problem problem;
  bool rearranges_inputs = false;
  bool rearranges_weights = false;
  bool rearranges_output = false;
  bool is_swapped = false;
};

// All forms: operands swapped, fields expanded into input channels, groups combined, plain
// dimensions flattened into the batch, dilation after the product.
std::vector<Form> forms_of(const Problem& problem);

}  // namespace poptorch::device
