// The gradient of a convolution's weight as products of matrices, strip by strip:
//
//   dw[o, (kh, kw, c)] = sum over pixels of dy[o, pixel] * patch[pixel, (kh, kw, c)]
//
// where a patch is what the kernel sees of the input at one pixel of the output. Patches of a strip
// of a few hundred pixels are laid out in scratch, channels last, so that they are copied in runs.
// For images and for sequences (one or two spatial dimensions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/loop.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// Whether a call of `convolution_backward` has a gradient that is computed in this way.
bool has_patches(const ops::Call& call);

// Writes result 1 of the call, dw. Scratch as the result says.
ops::Prepared patch_weight_gradient(const ops::Call& call);

// Whether all operands of a call of `convolution_backward`, and dw, lie channels-last, and each
// pixel of the output sees all channels of the input.
bool is_dense_last(const ops::Call& call);

// The same for images that lie channels-last, where oneDNN is slow: with strides, and for few
// pixels to sum over in relation to the channels. `can_cut`: whether it is possible at all.
bool can_cut_patches_last(const ops::Call& call);
bool has_patches_last(const ops::Call& call);
ops::Prepared patch_weight_gradient_last(const ops::Call& call);

// The gradient of the bias: sums over images and pixels.
struct ChannelSums {
  int64_t images, channels, pixels;
  // Channel by channel; of a type that lies neither row-major nor channels-last.
  std::optional<Loop> strided;

  // The type has channels as dimension 1, and any strides.
  explicit ChannelSums(const ir::Type& type);
};
template <typename T>
void sum_channels(const ChannelSums& s, const T* x, T* out, int threads);

}  // namespace poptorch::kernels
