// What the rows and the kernels of pooling and resampling share.
#pragma once

#include <string_view>
#include <utility>

#include "ops/op_def.h"

namespace poptorch::ops {

// One direction of a window that moves over an image.
struct WindowAxis {
  int64_t size = 0, out = 0;  // entries of the image and of the result
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
};

struct Pooling {
  int64_t planes = 1;  // [C, H, W] or [N, C, H, W]: the product of all but the last two sizes
  WindowAxis h, w;
};

// By the attributes kernel_size, stride, padding, dilation, ceil_mode; a user error where they fit
// no image of type x.
Pooling pooling(const InferInput& in, const ir::Type& x);

// Two numbers of an attribute that may be one number for both.
std::pair<int64_t, int64_t> pair_of(const InferInput& in, ir::AttrName name, int64_t absent);

// Entries of a window that a byte can distinguish.
constexpr int64_t most_in_window = 256;

// The image whose gradient a max_pool2d_backward computes: its operand, or as image_size says.
ir::Type pooled_image(const InferInput& in);

}  // namespace poptorch::ops
