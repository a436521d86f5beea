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

// The dimension that is `from_end` dimensions before the end, all ones where there is none.
inline ConvolutionAxis axis_of(const ir::Attrs& attrs, const ir::Type& image,
                               const ir::Type& pixels, const ir::Type& weight, size_t from_end) {
  const size_t rank = image.sizes.size();
  if (rank - 2 < from_end) return {1, 1, 1, 1, 0, 1};
  const auto number = [&](ir::AttrName name) {
    const ir::Dims values = attrs.get_ints(name);
    return values.size() == 1 ? values[0] : values[values.size() - from_end];
  };
  return {image.sizes[rank - from_end],  pixels.sizes[rank - from_end],
          weight.sizes[rank - from_end], number(ir::attr::stride),
          number(ir::attr::padding),             number(ir::attr::dilation)};
}

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

// Whether the weights of a packed_convolution are as they lie in the module.
inline bool is_unpacked(const ops::Call& call) { return call.in(1).rank() == 4; }

// x, w and y are the types of input, weight and output, with channels as dimension 1.
inline ConvolutionShape shape_of(const ir::Attrs& attrs, const ir::Type& x, const ir::Type& w,
                                 const ir::Type& y) {
  return {x.sizes[0], x.sizes[1], y.sizes[1], axis_of(attrs, x, y, w, 2),
          axis_of(attrs, x, y, w, 1)};
}

}  // namespace poptorch::kernels
