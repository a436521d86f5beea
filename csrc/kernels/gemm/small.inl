// The loops of gemm/small.h. Included by each_isa.h.

#include "kernels/simd/vec/half.inl"
#include "kernels/simd/vec/lanes.inl"
#include "kernels/simd/vec/transpose.inl"

using kernels::Gemm;

// What is multiplied: numbers[r * row + p * step] of row r at depth p, and the vectors that begin
// at vectors[p * vector_step].
template <typename B>
struct Sides {
  const float* numbers;
  int64_t row, step;
  const B* vectors;
  int64_t vector_step, depth;
};

// Sums of R rows of numbers with V vectors; the last vector has `last` lanes where is_part.
template <int R, int V, bool is_part, typename B>
inline void multiply(const Sides<B>& s, int64_t row, int64_t last, vf (*out)[V]) {
  constexpr int group = 4, groups = (R + group - 1) / group;  // rows that share a pointer
  const float* at[groups];
  for (int i = 0; i < groups; ++i) at[i] = s.numbers + (row + i * group) * s.row;
  const B* from = s.vectors;
  vf sums[R][V] = {};
  for (int64_t p = 0; p < s.depth; ++p) {
    vf x[V];
#pragma GCC unroll 16
    for (int j = 0; j < V; ++j) {
      const bool ends = is_part && j == V - 1;
      x[j] = ends ? Lanes<B>::get(from + j * width, last) : Lanes<B>::get(from + j * width);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const vf number = splat(at[i / group][i % group * s.row]);
#pragma GCC unroll 16
      for (int j = 0; j < V; ++j) sums[i][j] = multiply_add(number, x[j], sums[i][j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < groups; ++i) at[i] += s.step;
    from += s.vector_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < V; ++j) out[i][j] = sums[i][j];
  }
}

// Puts a vector of n lanes into c.
template <typename C>
inline void put_sums(const Gemm& g, C* c, vf sums, int64_t n) {
  vf out = static_cast<float>(g.alpha) * sums;
  if (g.beta != 0) {
    out = multiply_add(splat(static_cast<float>(g.beta)), Lanes<C>::get(c, n), out);
  }
  Lanes<C>::put(c, out, n);
}

// Rows `row` to the end of V vectors of columns: as many at a time as there are registers for.
template <int R, int V, bool is_part, typename B, typename C>
inline void row_blocks(const Gemm& g, const Sides<B>& s, int64_t row, int64_t last, C* c) {
  for (; row + R <= g.m; row += R) {
    vf sums[R][V];
    multiply<R, V, is_part>(s, row, last, sums);
    for (int i = 0; i < R; ++i) {
      for (int j = 0; j < V; ++j) {
        const int64_t n = is_part && j == V - 1 ? last : width;
        put_sums(g, c + (row + i) * g.ldc + j * width, sums[i][j], n);
      }
    }
  }
  if constexpr (R > 1) {
    if (row < g.m) row_blocks<R / 2, V, is_part>(g, s, row, last, c);
  }
}

// b by rows: vectors along the columns of c.
template <typename B, typename C>
inline void product_by_rows(const Gemm& g, const float* a, const B* b, C* c) {
  constexpr int rows = SIMD_WIDTH == 16 ? 8 : 4;
  Sides<B> s{a, g.trans_a ? 1 : g.lda, g.trans_a ? g.lda : 1, b, g.ldb, g.k};
  int64_t column = 0;
  for (; column + 3 * width <= g.n; column += 3 * width) {
    s.vectors = b + column;
    row_blocks<rows, 3, false>(g, s, 0, width, c + column);
  }
  const int64_t rest = g.n - column;
  s.vectors = b + column;
  if (rest > 2 * width) return row_blocks<rows, 3, true>(g, s, 0, rest - 2 * width, c + column);
  if (rest > width) return row_blocks<rows, 2, true>(g, s, 0, rest - width, c + column);
  if (rest > 0) row_blocks<rows, 1, true>(g, s, 0, rest, c + column);
}

// Sums of `count` <= width columns of c, as vectors along its rows.
template <int R, bool is_part>
inline void column_block(const Sides<float>& s, int64_t column, int64_t count, int64_t last,
                         vf* sums) {
  if (count >= R) {
    multiply<R, 1, is_part>(s, column, last, reinterpret_cast<vf(*)[1]>(sums));
    column += R;
    count -= R;
    sums += R;
  }
  if constexpr (R > 1) {
    if (count > 0) column_block<R / 2, is_part>(s, column, count, last, sums);
  }
}

// b by columns: vectors along the rows of c, `width` rows at a time.
template <typename C>
inline void product_by_columns(const Gemm& g, const float* a, const float* b, C* c) {
  alignas(64) float packed[kernels::small::most_depth * width];
  for (int64_t row = 0; row < g.m; row += width) {
    const int64_t rows = std::min<int64_t>(width, g.m - row);
    Sides<float> s{b, g.ldb, 1, packed, width, g.k};
    if (g.trans_a) {
      s.vectors = a + row;
      s.vector_step = g.lda;
    } else {
      transpose_rows(a + row * g.lda, g.lda, rows, g.k, packed, width);
    }
    for (int64_t column = 0; column < g.n; column += width) {
      const int64_t count = std::min<int64_t>(width, g.n - column);
      vf sums[width] = {};
      if (g.trans_a && rows < width) {
        column_block<width, true>(s, column, count, rows, sums);
      } else {
        column_block<width, false>(s, column, count, rows, sums);
      }
      transpose(sums);
      for (int64_t i = 0; i < rows; ++i) {
        put_sums(g, c + (row + i) * g.ldc + column, sums[i], count);
      }
    }
  }
}

inline void small_gemm(const Gemm& g, const float* a, const float* b, float* c) {
  g.trans_b ? product_by_columns(g, a, b, c) : product_by_rows(g, a, b, c);
}

template <typename C>
inline void product_with_f32(const Gemm& g, const float* a, const float* b, uint16_t* c) {
  auto* out = reinterpret_cast<C*>(c);
  g.trans_b ? product_by_columns(g, a, b, out) : product_by_rows(g, a, b, out);
}

template <typename C>
inline void product_with_float16(const Gemm& g, const float* a, const uint16_t* b, uint16_t* c) {
  product_by_rows(g, a, reinterpret_cast<const C*>(b), reinterpret_cast<C*>(c));
}

inline constexpr kernels::small::Float16Products f16_products = {product_with_f32<F16>,
                                                              product_with_float16<F16>};
inline constexpr kernels::small::Float16Products bf16_products = {product_with_f32<BF16>,
                                                               product_with_float16<BF16>};
