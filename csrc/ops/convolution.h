// What type rules and kernels of convolutions have in common.
#pragma once

#include "ir/attribute.h"
#include "ir/type.h"

namespace poptorch::ops {

// Winograd's form of a 3x3 kernel, by which a patch of 4x4 pixels gives 2x2 pixels of the result
// with a product for each pixel of the patch: of 36 products 16 are left.
constexpr int64_t winograd_side = 4, winograd_places = winograd_side * winograd_side;

// Whether pack_convolution makes room for that form of weights [outputs, channels, height, width].
bool takes_winograd(const ir::Attrs& attrs, const ir::Dims& weight_size);

}  // namespace poptorch::ops
