// What random kernels share: the draw that an op's `%rng` operand and `salt` name, and dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ir/dtype.h"
#include "kernels/simd/random.h"

namespace poptorch::kernels {

// `rng` is the i32[4] random state: seed (two words), replica, counter.
inline simd::Draw draw_of(const int32_t* rng, int64_t salt) {
  return {{static_cast<uint32_t>(rng[0]), static_cast<uint32_t>(rng[1])},
          static_cast<uint32_t>(rng[3]),
          static_cast<uint32_t>(salt),
          static_cast<uint32_t>(rng[2])};
}

// Rounds n elements by chance to what a 16-bit format has, in f32; element `first` + i takes the
// draw's word of that number. `first` is a multiple of 64.
using ChanceRound = void (*)(const simd::Draw& draw, int64_t first, int64_t n, const float* x,
                             float* out);
inline ChanceRound chance_round_to(ir::DType dtype) {
  const simd::RandomTable& table = simd::random_table();
  return dtype == ir::DType::f16 ? table.round_to_f16 : table.round_to_bf16;
}

// Dropout with rate p: an element stays, times `scale`, if its word is at least `threshold`.
// A rate so near to 1 that no word is that large drops all.
struct Dropout {
  explicit Dropout(double p)
      : drops_all(std::llround(p * 0x1p32) > UINT32_MAX),
        threshold(drops_all ? 0 : static_cast<uint32_t>(std::llround(p * 0x1p32))),
        scale(drops_all ? 0.0 : 1.0 / (1.0 - p)) {}

  bool drops_all;
  uint32_t threshold;
  double scale;
};

// out[i] = scale or 0 for the elements first .. first + n (any alignment).
template <typename T>
void dropout_factors(const simd::RandomTable& table, const simd::Draw& draw,
                     const Dropout& dropout, int64_t first, int64_t n, T* out) {
  uint32_t words[simd::random_group];
  for (int64_t done = 0; done < n;) {
    const int64_t element = first + done;
    const int64_t skipped = element % simd::random_group;
    const int64_t count = std::min(n - done, simd::random_group - skipped);
    table.words(draw, element / simd::random_group, 1, words);
    for (int64_t i = 0; i < count; ++i) {
      const bool stays = !dropout.drops_all && words[skipped + i] >= dropout.threshold;
      out[done + i] = stays ? static_cast<T>(dropout.scale) : T{0};
    }
    done += count;
  }
}

}  // namespace poptorch::kernels
