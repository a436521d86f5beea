// The loops of gemm_packed.h. Included by each_isa.h.

#include "kernels/simd/transpose.inl"

using kernels::PackedGemm;
using kernels::PackedSource;

constexpr int panel_columns = 2 * width;
// Rows of a that are multiplied at once: their sums and what they need fill the registers.
constexpr int most_rows = SIMD_WIDTH == 16 ? 12 : 6;
// Terms that are added before the next panel's turn: so much of the rows stays in the first cache.
constexpr int64_t most_terms = 256;
// From one row of these to the next. No power of two, or they would contend for few cache lines.
constexpr int64_t row_stride = most_terms + 16;

// Columns [first, first + count) of a part, `count` <= width; lanes past them are 0.
inline void pack_vector(const PackedSource& from, const float* part, int64_t first, int64_t count,
                        int64_t depth, int64_t step, float* out) {
  if (from.by_column) {
    return transpose_rows(part + first * from.stride, from.stride, count, depth, out, step);
  }
  for (int64_t p = 0; p < depth; ++p) {
    store(out + p * step, load_lanes(part + p * from.stride + first, count));
  }
}

inline void pack_weights(const PackedGemm& g, const PackedSource& from, float* packed) {
  const int64_t part_columns = kernels::padded(g.columns);
  for (int64_t part = 0; part < g.parts; ++part) {
    for (int64_t column = 0; column < part_columns; column += width) {
      const int64_t panel = column / panel_columns * panel_columns;
      const int64_t step = std::min<int64_t>(panel_columns, part_columns - panel);
      pack_vector(from, from.weights + part * from.next, column,
                  std::clamp<int64_t>(g.columns - column, 0, width), g.k, step,
                  packed + (part * part_columns + panel) * g.k + (column - panel));
    }
  }
}

// Where a tile of c is, and of it `columns` numbers in each row.
struct Tile {
  float* c;
  int64_t stride, columns;
  bool adds;  // to what an earlier part of the sums left there

  int64_t lanes(int vector) const {
    return std::clamp<int64_t>(columns - vector * width, 0, width);
  }
  vf get(int row, int vector) const {
    return load_lanes(c + row * stride + vector * width, lanes(vector));
  }
  void put(int row, int vector, vf sums) const {
    const int64_t n = lanes(vector);
    float* to = c + row * stride + vector * width;
    n == width ? store(to, sums) : store_part(to, sums, n);
  }
};

// A tile of R rows and V vectors from `terms` terms.
template <int R, int V>
void multiply_tile(const float* rows, const float* panel, int64_t terms, const Tile& tile) {
  vf sums[R][V];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) sums[i][j] = tile.adds ? tile.get(i, j) : vf{};
  }
  for (int64_t p = 0; p < terms; ++p) {
    vf x[V];
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) x[j] = load(panel + (p * V + j) * width);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      const vf number = splat(rows[i * row_stride + p]);
#pragma GCC unroll 2
      for (int j = 0; j < V; ++j) sums[i][j] = multiply_add(number, x[j], sums[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) tile.put(i, j, sums[i][j]);
  }
}

using MultiplyTile = void (*)(const float*, const float*, int64_t, const Tile&);

template <int V, int... i>
inline MultiplyTile tile_of(int64_t rows, std::integer_sequence<int, i...>) {
  static constexpr MultiplyTile tiles[] = {multiply_tile<i + 1, V>...};
  return tiles[rows - 1];
}

// `rows` rows of c, with a part of the sums: from depth `first` on. `a` holds their numbers there.
inline void multiply_rows(const PackedGemm& g, int64_t rows, const float* a, int64_t first,
                          int64_t terms, const float* packed, float* c) {
  constexpr auto counts = std::make_integer_sequence<int, most_rows>{};
  const MultiplyTile two = tile_of<2>(rows, counts), one = tile_of<1>(rows, counts);
  const int64_t part_columns = kernels::padded(g.columns), stride = g.parts * g.columns;
  for (int64_t part = 0; part < g.parts; ++part) {
    const float* panels = packed + part * g.k * part_columns;
    for (int64_t column = 0; column < g.columns; column += panel_columns) {
      const int64_t step = std::min<int64_t>(panel_columns, part_columns - column);
      const float* panel = panels + column * g.k + first * step;
      const Tile tile{c + part * g.columns + column, stride,
                      std::min<int64_t>(step, g.columns - column), first > 0};
      (step > width ? two : one)(a, panel, terms, tile);
    }
  }
}

inline void packed_gemm(const PackedGemm& g, const float* a, int64_t lda, const float* packed,
                        float* c) {
  alignas(64) float copy[most_rows * row_stride];
  // Groups of rows that differ by one at most: few rows by themselves would be slow.
  const int64_t groups = (g.m + most_rows - 1) / most_rows;
  for (int64_t first = 0; first < g.k; first += most_terms) {
    const int64_t terms = std::min(most_terms, g.k - first);
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t row = g.m * group / groups, rows = g.m * (group + 1) / groups - row;
      for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(copy + i * row_stride, a + (row + i) * lda + first,
                    static_cast<size_t>(terms) * sizeof(float));
      }
      multiply_rows(g, rows, copy, first, terms, packed, c + row * g.parts * g.columns);
    }
  }
}

inline constexpr PackedFunctions packed_functions = {pack_weights, packed_gemm};
