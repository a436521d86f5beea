// Inner loops of pooling for f32, compiled once for each instruction set.
#pragma once

#include <cstdint>

namespace poptorch::simd {

struct PoolLoops {
  // even[i] = line[2 i], odd[i] = line[2 i + 1], n of each; and back.
  void (*split)(const float* line, float* even, float* odd, int64_t n);
  void (*join)(const float* even, const float* odd, float* line, int64_t n);
  // Takes x[i] over best[i] where it is larger or NaN, and then position + i * step over where[i].
  void (*take_larger)(const float* x, int64_t n, int32_t position, int32_t step, float* best,
                      int32_t* where);
  void (*add)(const float* x, int64_t n, float* sums);
};

// Of the instruction set in use: ask when a kernel is prepared.
const PoolLoops& pool_loops();

}  // namespace poptorch::simd
