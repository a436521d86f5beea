// One spatial dimension of a convolution.
#pragma once

#include <cstdint>

#include "ops/kernel.h"

namespace poptorch::kernels {

struct ConvolutionAxis {
  int64_t from, to;  // of the image that patches are taken of, and of the pixels
  int64_t kernel, stride, padding, dilation;

  // Extent of the padded image that pixels [0, n) see.
  int64_t seen(int64_t n) const { return (n - 1) * stride + (kernel - 1) * dilation + 1; }
};

// The dimension that is `from_end` dimensions before the end, all ones where there is none.
inline ConvolutionAxis axis_of(const ir::Attrs& attrs, const ir::Type& image,
                               const ir::Type& pixels, const ir::Type& weight, size_t from_end) {
  const size_t rank = image.sizes.size();
  if (rank - 2 < from_end) return {1, 1, 1, 1, 0, 1};
  const auto number = [&](const char* name) {
    const ir::Dims values = attrs.get_ints(name);
    return values.size() == 1 ? values[0] : values[values.size() - from_end];
  };
  return {image.sizes[rank - from_end],  pixels.sizes[rank - from_end],
          weight.sizes[rank - from_end], number("stride"),
          number("padding"),             number("dilation")};
}

}  // namespace poptorch::kernels
