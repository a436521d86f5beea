#include "kernels/simd/vec/half.inl"

inline vf same(vf v) { return v; }

// R rows and V vectors of columns.
template <int R, int V, vf (*round_one)(vf)>
inline void add_partials(const float* a, int64_t lda, const float* b, int64_t depth,
                         float* totals) {
  vf total[R][V];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < V; ++j) total[r][j] = load(totals + r * partials_nr + j * width);
  }
  for (int64_t at = 0; at < depth; at += partials_chunk) {
    const int64_t end = std::min(at + partials_chunk, depth);
    vf sums[R][V] = {};
    for (int64_t i = at; i < end; ++i) {
      vf x[V];
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) x[j] = load(b + i * partials_nr + j * width);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const vf number = splat(a[r * lda + i]);
#pragma GCC unroll 4
        for (int j = 0; j < V; ++j) sums[r][j] = multiply_add(number, x[j], sums[r][j]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) total[r][j] = round_one(total[r][j] + sums[r][j]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < V; ++j) store(totals + r * partials_nr + j * width, total[r][j]);
  }
}

inline void partials_add_product(const float* a, int64_t lda, int64_t rows, const float* panel,
                                 int64_t depth, float* totals) {
  constexpr int at_once = SIMD_WIDTH == 16 ? 4 : 2, vectors = 2;
  for (int64_t column = 0; column < partials_nr; column += vectors * width) {
    int64_t row = 0;
    for (; row + at_once <= rows; row += at_once) {
      add_partials<at_once, vectors, round_f16>(a + row * lda, lda, panel + column, depth,
                                                totals + row * partials_nr + column);
    }
    for (; row < rows; ++row) {
      add_partials<1, vectors, round_f16>(a + row * lda, lda, panel + column, depth,
                                          totals + row * partials_nr + column);
    }
  }
}

inline void partials_add_chunk(const float* a, const float* panel, int64_t depth, float* totals) {
  for (int64_t column = 0; column < partials_nr; column += 2 * width) {
    add_partials<1, 2, same>(a, 0, panel + column, depth, totals + column);
  }
}

inline constexpr Float16PartialsTable float16_partials_functions = {partials_add_product,
                                                                    partials_add_chunk};
