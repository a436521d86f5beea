// Inner loops of pooling for f32, compiled once for each instruction set.
#pragma once

#include <cstdint>

namespace poptorch::simd {

// What a tap of a window reads: where it lies, and the position that stands for it.
struct PoolTap {
  int64_t offset;
  int32_t position;
};

struct PoolLoops {
  // even[i] = line[2 i], odd[i] = line[2 i + 1], n of each; and back.
  void (*split)(const float* line, float* even, float* odd, int64_t n);
  void (*join)(const float* even, const float* odd, float* line, int64_t n);
  // Takes x[i] over best[i] where it is larger or NaN, and then position + i * step over where[i].
  void (*take_larger)(const float* x, int64_t n, int32_t position, int32_t step, float* best,
                      int32_t* where);
  // best[i] is the largest x[offset + i] of `count` >= 1 taps, or NaN, and where[i] its position.
  void (*largest)(const float* x, const PoolTap* taps, int64_t count, int64_t n, float* best,
                  int32_t* where);
  void (*add)(const float* x, int64_t n, float* sums);
  // Adds x[i] where where[i] is `entry`.
  void (*add_taken)(const float* x, const int32_t* where, int32_t entry, int64_t n, float* sums);
};

// Of the instruction set in use: to be got when a kernel is prepared.
const PoolLoops& pool_loops();

}  // namespace poptorch::simd
