// The loops of gemm/bf16/bf16_loops.h.
#include "kernels/gemm/bf16/bf16_loops.h"

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/gemm/packed.h"
#include "support/memory/align.h"
#include "support/memory/thread_memory.h"

#define SIMD_WIDTH 16
namespace poptorch::simd::avx512bf16 {

#include "kernels/simd/vec/vec.inl"
#include "kernels/gemm/tiles.inl"
#include "kernels/gemm/bf16/bf16_pairs.inl"

// The first n of 32 numbers side by side, as words; others are 0.
inline vf load_words(const uint16_t* from, int64_t n) {
  const __mmask32 mask = n >= 32 ? ~__mmask32{0} : (__mmask32{1} << n) - 1;
  return reinterpret_cast<vf>(_mm512_maskz_loadu_epi16(mask, from));
}

// Columns [first, first + count), `count` <= width.
inline void pack_vector(const uint16_t* b, int64_t stride, bool by_column, int64_t first,
                        int64_t count, int64_t depth, int64_t step, float* out) {
  if (by_column) {
    const auto load_from = [=](int64_t i, int64_t word) {
      return load_words(b + (first + i) * stride + 2 * word, depth - 2 * word);
    };
    return transpose_loaded(load_from, count, Words<uint16_t>::of(depth), out, step);
  }
  for (int64_t p = 0; p < depth; p += 2) {
    store(out + p / 2 * step, zip_rows(b + p * stride + first, stride, count, p + 1 < depth));
  }
}

inline void pack_panels(const uint16_t* b, int64_t stride, bool by_column, int64_t columns,
                        int64_t depth, float* packed) {
  const auto pack = [=](int64_t first, int64_t count, int64_t step, float* out) {
    pack_vector(b, stride, by_column, first, count, depth, step, out);
  };
  pack_each_vector(columns, Words<uint16_t>::of(depth), packed, pack);
}

inline void copy_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t depth,
                      float* copy) {
  const int64_t words = Words<uint16_t>::of(depth);
  for (int64_t i = 0; i < rows; ++i) {
    float* to = copy + i * row_stride;
    if (depth % 2 != 0) to[words - 1] = 0;
    std::memcpy(to, from + i * stride, static_cast<size_t>(depth) * sizeof(uint16_t));
  }
}

#include "kernels/gemm/blocked_loops.inl"

// -- few rows by columns of b that lie side by side: nothing is packed, b is read once --

constexpr int few_rows = 4;

// To join the lanes of a sum takes as long as to sum up some hundred numbers.
inline bool has_few_rows(const Gemm& g) {
  return g.trans_b && !g.trans_a && g.m <= few_rows && (g.m - 1) * 128 <= g.k;
}

// R rows of a by C columns from `column` on.
template <int R, int C>
inline void multiply_columns(const Gemm& g, const uint16_t* a, const uint16_t* b, int64_t column,
                             float* c) {
  vf sums[R][C] = {};
  for (int64_t p = 0; p < g.k; p += 2 * width) {
    vf pairs[C];
    for (int j = 0; j < C; ++j) pairs[j] = load_words(b + (column + j) * g.ldb + p, g.k - p);
    for (int i = 0; i < R; ++i) {
      const vf row = load_words(a + i * g.lda + p, g.k - p);
      for (int j = 0; j < C; ++j) sums[i][j] = Pairs::add_product(row, pairs[j], sums[i][j]);
    }
  }
  const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < C; ++j) {
      float& out = c[i * g.ldc + column + j];
      out = alpha * sum(sums[i][j]) + (beta == 0 ? 0 : beta * out);
    }
  }
}

template <int R>
inline void multiply_few_rows(const Gemm& g, const uint16_t* a, const uint16_t* b, float* c) {
  int64_t column = 0;
  for (; column + 4 <= g.n; column += 4) multiply_columns<R, 4>(g, a, b, column, c);
  for (; column < g.n; ++column) multiply_columns<R, 1>(g, a, b, column, c);
}

inline void bf16_gemm(const Gemm& g, const uint16_t* a, const uint16_t* b, float* c,
                      ThreadMemory& memory) {
  if (has_few_rows(g)) {
    return for_rows<few_rows>(g.m, []<int R>() { return &multiply_few_rows<R>; })(g, a, b, c);
  }
  multiply_by_blocks(g, a, b, c, memory.numbers<float>(packed_words));
}

}  // namespace poptorch::simd::avx512bf16
#undef SIMD_WIDTH

namespace poptorch::kernels {

void bf16_loops_gemm(const Gemm& g, const uint16_t* a, const uint16_t* b, float* c) {
  thread_local ThreadMemory memory;
  simd::avx512bf16::bf16_gemm(g, a, b, c, memory);
}

}  // namespace poptorch::kernels
