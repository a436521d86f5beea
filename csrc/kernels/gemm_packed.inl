// The loops of gemm_packed.h. Included by each_isa.h.

#include "kernels/gemm_tiles.inl"

using kernels::PackedGemm;

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
      const Tile tile{.c = c + part * g.columns + column,
                      .stride = stride,
                      .columns = std::min<int64_t>(step, g.columns - column),
                      .beta = first > 0 ? 1.0f : 0.0f};
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
