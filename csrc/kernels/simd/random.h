// Random words of the counter-based generator Philox4x32-10 (Salmon et al., SC'11).
//
// A draw is named by (seed, counter, salt, replica) and the index of an element; nothing is stored
// between draws. Elements are numbered in groups of 64: element e takes word (e % 64) / 16 of the
// block (e / 64) * 16 + e % 16. So the words do not depend on the width of vectors.
#pragma once

#include <cstdint>

namespace poptorch::simd {

// All that names a draw but the index of the element.
struct Draw {
  uint32_t seed[2];
  uint32_t counter;
  uint32_t salt;
  uint32_t replica;
};

constexpr int64_t random_group = 64;  // elements

struct RandomTable {
  // The words of `groups` groups from number `first` on: 64 * groups of them.
  void (*words)(const Draw& draw, int64_t first, int64_t groups, uint32_t* out);
  // out[i] = x[i] * scale where the word of element `first` + i is at least `threshold`, else 0.
  // `first` is a multiple of 64. x and out may be equal.
  void (*dropout)(const Draw& draw, int64_t first, int64_t n, uint32_t threshold, float scale,
                  const float* x, float* out);
  // out[i] = mean + std * normal variate made of the words a[i] and b[i] (Box-Muller).
  void (*normal)(const uint32_t* a, const uint32_t* b, int64_t n, float mean, float std,
                 float* out);
  // x rounded by chance to numbers of a 16-bit format, as f32: to the next one above or below, so
  // that the mean is x. What the format has stays. Beyond its largest number the nearest is taken,
  // which may be infinity. `first` is a multiple of 64. x and out may be equal.
  void (*round_to_f16)(const Draw& draw, int64_t first, int64_t n, const float* x, float* out);
  void (*round_to_bf16)(const Draw& draw, int64_t first, int64_t n, const float* x, float* out);
};
const RandomTable& random_table();

}  // namespace poptorch::simd
