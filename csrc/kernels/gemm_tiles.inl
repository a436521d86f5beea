// Tiles of a product: a few rows of a times a panel of b, whose columns are those of two vectors.
// Included by families inside the namespace of each_isa.h.

#include "kernels/simd/transpose.inl"

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

// Numbers of a depth in a panel that has so many columns left to hold.
inline int64_t panel_step(int64_t columns) { return columns > width ? panel_columns : width; }

// Columns of a part as panels of two vectors, of which the last may be one; lanes past them are 0.
inline void pack_columns(const PackedSource& from, const float* part, int64_t columns,
                         int64_t depth, float* packed) {
  for (int64_t at = 0; at < columns; at += width) {
    const int64_t panel = at / panel_columns * panel_columns;
    pack_vector(from, part, at, std::min<int64_t>(width, columns - at), depth,
                panel_step(columns - panel), packed + panel * depth + (at - panel));
  }
}

// Rows of a in groups that differ by one at most: few rows by themselves would be slow.
struct Groups {
  int64_t rows, count;

  explicit Groups(int64_t m) : rows(m), count((m + most_rows - 1) / most_rows) {}
  int64_t begin(int64_t group) const { return rows * std::min(group, count) / count; }
  int64_t size(int64_t group) const { return begin(group + 1) - begin(group); }
};

// Some numbers of each of `rows` rows, side by side, `row_stride` apart.
inline void copy_rows(const float* from, int64_t stride, int64_t rows, int64_t terms, float* copy) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(copy + i * row_stride, from + i * stride,
                static_cast<size_t>(terms) * sizeof(float));
  }
}

// Where a tile of c is, of it `columns` numbers in each row, and what becomes of its sums: as in
// kernels::Gemm. The sums of another part of k are in c already when beta is 1.
struct Tile {
  float* c = nullptr;
  int64_t stride = 0, columns = 0;
  float alpha = 1, beta = 0;
};

// Writes the sums of a tile; of a `whole` one no column is missing.
template <bool whole, int R, int V>
void put_tile(const vf (&sums)[R][V], const Tile& tile) {
#pragma GCC unroll 2
  for (int j = 0; j < V; ++j) {
    const int64_t lanes = whole ? width : std::clamp<int64_t>(tile.columns - j * width, 0, width);
    float* c = tile.c + j * width;
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i, c += tile.stride) {
      vf out = sums[i][j] * tile.alpha;
      if (tile.beta != 0) {
        out = multiply_add(splat(tile.beta), whole ? load(c) : load_part(c, lanes), out);
      }
      whole ? store(c, out) : store_part(c, out, lanes);
    }
  }
}

// A tile of R rows and V vectors from `terms` terms.
template <int R, int V>
void multiply_tile(const float* rows, const float* panel, int64_t terms, const Tile& tile) {
  vf sums[R][V] = {};
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
  tile.columns == V * width ? put_tile<true>(sums, tile) : put_tile<false>(sums, tile);
}

using MultiplyTile = void (*)(const float*, const float*, int64_t, const Tile&);

template <int V, int... i>
inline MultiplyTile tile_of(int64_t rows, std::integer_sequence<int, i...>) {
  static constexpr MultiplyTile tiles[] = {multiply_tile<i + 1, V>...};
  return tiles[rows - 1];
}

