// The loops of gemm/blocked.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"

using kernels::Gemm;

// Columns of b that are packed at once: with `most_terms` terms they take half of a second cache.
constexpr int64_t most_columns = 512;
constexpr int64_t packed_numbers = most_columns * most_terms;

// Columns [column, column + columns) of b, with the terms from depth `first` on.
struct PackedPart {
  int64_t column, columns, first, terms;
};

inline const float* first_of(const Gemm& g, const float* b, const PackedPart& part) {
  return g.trans_b ? b + part.column * g.ldb + part.first : b + part.first * g.ldb + part.column;
}

inline void pack_panels(const Gemm& g, const float* b, const PackedPart& part, float* packed) {
  const PackedSource from{first_of(g, b, part), 0, g.ldb, g.trans_b};
  pack_columns(from, from.weights, part.columns, part.terms, packed);
}

inline int64_t tiles_of(const PackedPart& part) {
  return (part.columns + panel_columns - 1) / panel_columns;
}

inline Ahead ahead_of_rows(const Gemm& g, const float* a, int64_t row, int64_t rows,
                           const PackedPart& part) {
  const int64_t steps = tiles_of(part) * steps_of(part.terms);
  if (g.trans_a) return {a + part.first * g.lda + row, g.lda, part.terms, rows, steps};
  return {a + row * g.lda + part.first, g.lda, rows, part.terms, steps};
}

inline Ahead ahead_of_part(const Gemm& g, const float* b, const PackedPart& part, int64_t steps) {
  const int64_t rows = g.trans_b ? part.columns : part.terms;
  const int64_t run = g.trans_b ? part.terms : part.columns;
  return {first_of(g, b, part), g.ldb, rows, run, steps};
}

// What becomes of the sums of a part.
inline Tile tile_of_part(const Gemm& g, const PackedPart& part) {
  Tile tile{.stride = g.ldc,
            .alpha = static_cast<float>(g.alpha),
            .beta = part.first > 0 ? 1.0f : static_cast<float>(g.beta)};
  const bool is_last = part.first + part.terms == g.k;
  tile.relu = is_last && g.relu;
  if (g.scale != nullptr) tile.scale = g.scale + part.column;
  if (g.bias != nullptr && is_last) tile.bias = g.bias + part.column;
  return tile;
}

// All rows of c that a packed part of b adds to; `next` is the part after it.
template <bool turned>
void multiply_part(const Gemm& g, const PackedPart& part, const PackedPart& next, const float* a,
                   const float* b, const float* packed, float* c) {
  alignas(alignment_bytes) float copy[most_rows * row_stride];
  const Groups groups(g.m);
  const Tile of_part = tile_of_part(g, part);
  const int64_t steps = groups.count * tiles_of(part) * steps_of(part.terms);
  Fetch fetch{{}, ahead_of_part(g, b, next, steps)};
  for (int64_t group = 0; group < groups.count; ++group) {
    const int64_t row = groups.begin(group), rows = groups.size(group);
    const auto two = tile_of<turned, 2>(rows), one = tile_of<turned, 1>(rows);
    if (turned) {
      copy_turned(a + part.first * g.lda + row, g.lda, rows, part.terms, copy);
    } else {
      copy_rows(a + row * g.lda + part.first, g.lda, rows, part.terms, copy);
    }
    fetch.rows = ahead_of_rows(g, a, row + rows, groups.size(group + 1), part);
    for (int64_t at = 0; at < part.columns; at += panel_columns) {
      const Tile tile = tile_at(of_part, part.columns, c + row * g.ldc + part.column, at);
      (tile.columns > width ? two : one)(copy, packed + at * part.terms, part.terms, tile, fetch);
    }
  }
}

// The part of b that begins there or, where there are no more terms, with the next columns. It has
// no columns if there are none.
inline PackedPart part_at(const Gemm& g, int64_t column, int64_t first) {
  if (first > 0 && first >= g.k) return part_at(g, std::min(g.n, column + most_columns), 0);
  return {column, std::min(most_columns, g.n - column), first, std::min(most_terms, g.k - first)};
}

inline void blocked_gemm(const Gemm& g, const float* a, const float* b, float* c, float* packed) {
  for (PackedPart part = part_at(g, 0, 0); part.columns > 0;) {
    // Without any terms there is a part, too, which writes c.
    const PackedPart next = part_at(g, part.column, part.first + std::max<int64_t>(1, part.terms));
    pack_panels(g, b, part, packed);
    (g.trans_a ? multiply_part<true> : multiply_part<false>)(g, part, next, a, b, packed, c);
    part = next;
  }
}

inline constexpr BlockedFunctions blocked_functions = {blocked_gemm, packed_numbers};
