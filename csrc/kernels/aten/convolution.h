// What all convolutions say of where their kernel stands on the image.
#pragma once

#include "ir/attribute.h"
#include "ir/type.h"

namespace poptorch::kernels {

struct ConvolutionGeometry {
  ir::Dims stride, padding, dilation;
  int64_t groups;

  // The attributes are those of a `convolution`, its gradient, or a `packed_convolution`.
  explicit ConvolutionGeometry(const ir::Attrs& attrs)
      : stride(attrs.get_ints("stride")),
        padding(attrs.get_ints("padding")),
        dilation(attrs.get_ints("dilation")),
        groups(attrs.get_int("groups")) {}
};

}  // namespace poptorch::kernels
