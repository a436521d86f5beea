// What the rows and the kernels of im2col and col2im share.
#pragma once

#include "ops/families/pooling.h"

namespace poptorch::ops {

// Blocks that slide over images [C, H, W] or [N, C, H, W]. Each block is a column of the matrix
// [C * kernel height * kernel width, blocks] that an image becomes.
struct SlidingBlocks {
  int64_t planes = 1;  // N * C
  WindowAxis h, w;     // `out`: how many blocks lie along it

  int64_t in_block() const { return h.kernel * w.kernel; }
  int64_t blocks() const { return h.out * w.out; }
};

// By the attributes kernel_size, dilation, padding, stride; a user error where they fit no image
// of these sizes.
SlidingBlocks sliding_blocks(const InferInput& in, const ir::Dims& image);

}  // namespace poptorch::ops
