// The loops of conv/direct_weight_gradient.h for bfloat16 images.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/conv/direct_weight_gradient.h"
#include "kernels/gemm/packed.h"
#include "support/align.h"

#define SIMD_WIDTH 16
namespace poptorch::simd::avx512bf16 {

#include "kernels/simd/vec.inl"
#include "kernels/gemm/tiles.inl"
#include "kernels/gemm/bf16_pairs.inl"
#include "kernels/conv/window.inl"

// One line, as words of a pixel and the one that is `stride` further; `line` is nullptr in the
// padding.
inline void see_line(const ConvolutionShape& s, const uint16_t* line, const Seen& seen, float* to) {
  for (int64_t i = 0; i < seen.width; ++i) {
    const int64_t first = i - s.w.padding, second = first + s.w.stride;
    const auto is_inside = [&](int64_t x) { return line != nullptr && x >= 0 && x < s.w.from; };
    const bool has_first = is_inside(first), has_second = is_inside(second);
    for (int64_t at = 0; at < seen.step; at += width) {
      const auto load_at = [&](int64_t x) {
        return load_numbers(line + x * s.channels + seen.first + at, seen.count - at);
      };
      vi words{};
      if (has_first) words = load_at(first);
      if (has_second) words |= load_at(second) << 16;
      store(to + i * seen.step + at, as_float(words));
    }
  }
}

#include "kernels/conv/direct_weight_gradient_loops.inl"

extern const DirectGradientFunctions<uint16_t> direct_gradient_functions = {sum_weights<uint16_t>,
                                                                            weight_memory, NR};

}  // namespace poptorch::simd::avx512bf16
#undef SIMD_WIDTH
