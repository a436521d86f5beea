// The loops of gemm/packed.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"

using kernels::PackedGemm;

inline void pack_weights(const PackedGemm& g, const PackedSource& from, float* packed) {
  for (int64_t part = 0; part < g.parts; ++part) {
    pack_columns(from, from.weights + part * from.next, g.columns, g.k,
                 packed + part * kernels::padded(g.columns) * g.k);
  }
}

// `rows` rows of c, with a part of the sums: from depth `first` on. `a` holds their numbers there.
inline void multiply_rows(const PackedGemm& g, int64_t rows, const float* a, int64_t first,
                          int64_t kc, const float* packed, float* c) {
  const auto two = tile_of<false, 2>(rows), one = tile_of<false, 1>(rows);
  Fetch fetch;
  const int64_t part_columns = kernels::padded(g.columns), stride = g.parts * g.columns;
  for (int64_t part = 0; part < g.parts; ++part) {
    const float* panels = packed + part * g.k * part_columns;
    for (int64_t column = 0; column < g.columns; column += NR) {
      const int64_t step = panel_step(g.columns - column);
      const float* panel = panels + column * g.k + first * step;
      const Tile tile{.c = c + part * g.columns + column,
                      .stride = stride,
                      .columns = std::min<int64_t>(step, g.columns - column),
                      .beta = first > 0 ? 1.0f : 0.0f};
      (step > width ? two : one)(a, panel, kc, tile, fetch);
    }
  }
}

inline void packed_gemm(const PackedGemm& g, const float* a, int64_t lda, const float* packed,
                        float* c) {
  alignas(64) float copy[MR * row_stride];
  const Groups groups(g.m);
  for (int64_t first = 0; first < g.k; first += KC) {
    const int64_t kc = std::min(KC, g.k - first);
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t row = groups.begin(group), rows = groups.size(group);
      copy_rows(a + row * lda + first, lda, rows, kc, copy);
      multiply_rows(g, rows, copy, first, kc, packed, c + row * g.parts * g.columns);
    }
  }
}

inline constexpr PackedFunctions packed_functions = {pack_weights, packed_gemm};
