// Gradients of a weight that are summed in layers, each over some of the pixels.
#pragma once

#include <cstdint>

#include "kernels/float16_blocks.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// Adds `others`, `count` layers of n sums, to `sums` in their order. With `rounded`, their bfloat16
// are written there.
inline void add_layers(float* sums, const float* others, int64_t count, int64_t n,
                       uint16_t* rounded, int threads) {
  constexpr int64_t grain = 1 << 13;
  if (count == 0 && rounded == nullptr) return;
  parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t layer = 0; layer < count; ++layer) {
      const float* from = others + layer * n;
      for (int64_t i = begin; i < end; ++i) sums[i] += from[i];
    }
    if (rounded) downcast_to(ir::DType::bf16)(sums + begin, rounded + begin, end - begin);
  });
}

}  // namespace poptorch::kernels
