// Sizes of a convolution of channels-last images.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernel.h"

namespace poptorch::kernels {

// Of strides, paddings or dilations, which may be one number for all dimensions.
inline bool is_all(const ir::Dims& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](int64_t v) { return v == value; });
}

// One spatial dimension.
struct ConvolutionAxis {
  int64_t from, to;  // of the image that the kernel stands on, and of the pixels
  int64_t kernel, stride, padding, dilation;

  // Extent of the padded image that pixels [0, n) see.
  int64_t seen(int64_t n) const { return (n - 1) * stride + (kernel - 1) * dilation + 1; }
};

// Of one group: images [h.from, w.from, channels] to [h.to, w.to, outputs].
struct ConvolutionShape {
  int64_t images, channels, outputs;
  ConvolutionAxis h, w;

  int64_t taps() const { return h.kernel * w.kernel; }
  // Rows of pixels of the result, those of one image after those of the other.
  int64_t lines() const { return images * h.to; }
  // Lines that are computed together, so that their pixels' numbers stay in the first cache.
  int64_t lines_at_once() const {
    constexpr int64_t pixels = 256;
    return std::clamp<int64_t>(pixels / w.to, 1, lines());
  }
};

// Where the weight of an output, a channel and a tap of the kernel lies.
struct ConvolutionWeights {
  const float* weights;
  int64_t output, channel, line, column;  // numbers from one to the next
};

// Whether the weights of a packed_convolution have the layout of the module.
inline bool is_unpacked(const ops::Call& call) { return call.in(1).rank() == 4; }

}  // namespace poptorch::kernels
