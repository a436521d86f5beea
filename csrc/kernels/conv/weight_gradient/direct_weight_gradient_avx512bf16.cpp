// The loops of direct_weight_gradient.h for bfloat16 images.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/conv/weight_gradient/direct_weight_gradient.h"
#include "kernels/gemm/packed.h"
#include "support/memory/align.h"

#define SIMD_WIDTH 16
namespace poptorch::simd::avx512bf16 {

#include "kernels/simd/vec/vec.inl"
#include "kernels/gemm/tiles.inl"
#include "kernels/gemm/bf16/bf16_pairs.inl"
#include "kernels/conv/window.inl"

// One line, as words of a pixel and the one that is `stride` further; `line` is nullptr in the
// padding.
inline void see_line(const ConvolutionShape& s, const uint16_t* line, const Seen& seen, float* to) {
  const int64_t pixels = line == nullptr ? 0 : s.w.from;
  for (int64_t at = 0; at < seen.step; at += width) {
    const auto load_at = [&, first = seen.first + at, n = seen.count - at](int64_t pixel) {
      const bool is_inside = pixel >= 0 && pixel < pixels;
      return is_inside ? load_numbers(line + pixel * s.channels + first, n) : vi{};
    };
    for (int64_t i = 0; i < seen.width; ++i) {
      const int64_t pixel = i - s.w.padding;
      const vi words = load_at(pixel + s.w.stride) << 16 | load_at(pixel);
      store(to + i * seen.step + at, as_float(words));
    }
  }
}

#include "kernels/conv/weight_gradient/direct_weight_gradient_loops.inl"

extern const DirectGradientFunctions<uint16_t> direct_gradient_functions = {sum_weights<uint16_t>,
                                                                            weight_memory, NR};

}  // namespace poptorch::simd::avx512bf16
#undef SIMD_WIDTH
