// The loops of gemm/blocked.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"

using kernels::Gemm;

// Columns of b that are packed at once: KC deep they take half of a second cache.
constexpr int64_t NC = 512;
constexpr int64_t packed_numbers = NC * KC;

// Columns [column, column + columns) of b, `kc` deep, from depth `first` on.
struct PackedBlock {
  int64_t column, columns, first, kc;
};

inline const float* first_of(const Gemm& g, const float* b, const PackedBlock& block) {
  const int64_t row = g.trans_b ? block.column : block.first;
  return b + row * g.ldb + (g.trans_b ? block.first : block.column);
}

inline void pack_block(const Gemm& g, const float* b, const PackedBlock& block, float* packed) {
  const PackedSource from{first_of(g, b, block), 0, g.ldb, g.trans_b};
  pack_columns(from, from.weights, block.columns, block.kc, packed);
}

inline int64_t tiles_of(const PackedBlock& block) {
  return (block.columns + NR - 1) / NR;
}

inline Ahead ahead_of_rows(const Gemm& g, const float* a, int64_t row, int64_t rows,
                           const PackedBlock& block) {
  const int64_t steps = tiles_of(block) * steps_of(block.kc);
  if (g.trans_a) return {a + block.first * g.lda + row, g.lda, block.kc, rows, steps};
  return {a + row * g.lda + block.first, g.lda, rows, block.kc, steps};
}

inline Ahead ahead_of_block(const Gemm& g, const float* b, const PackedBlock& block,
                            int64_t steps) {
  const int64_t rows = g.trans_b ? block.columns : block.kc;
  const int64_t run = g.trans_b ? block.kc : block.columns;
  return {first_of(g, b, block), g.ldb, rows, run, steps};
}

// What becomes of the sums of a block.
inline Tile tile_of_block(const Gemm& g, const PackedBlock& block) {
  Tile tile{.stride = g.ldc,
            .alpha = static_cast<float>(g.alpha),
            .beta = block.first > 0 ? 1.0f : static_cast<float>(g.beta)};
  const bool is_last = block.first + block.kc == g.k;
  tile.relu = is_last && g.relu;
  if (g.scale != nullptr) tile.scale = g.scale + block.column;
  if (g.bias != nullptr && is_last) tile.bias = g.bias + block.column;
  return tile;
}

// All rows of c that a packed block of b adds to; `next` is the block after it.
template <bool transposed>
void multiply_block(const Gemm& g, const PackedBlock& block, const PackedBlock& next,
                    const float* a, const float* b, const float* packed, float* c) {
  alignas(alignment_bytes) float copy[MR * row_stride];
  const Groups groups(g.m);
  const Tile of_block = tile_of_block(g, block);
  const int64_t steps = groups.count * tiles_of(block) * steps_of(block.kc);
  Fetch fetch{{}, ahead_of_block(g, b, next, steps)};
  for (int64_t group = 0; group < groups.count; ++group) {
    const int64_t row = groups.begin(group), rows = groups.size(group);
    const auto two = tile_of<transposed, 2>(rows), one = tile_of<transposed, 1>(rows);
    if (transposed) {
      copy_transposed(a + block.first * g.lda + row, g.lda, rows, block.kc, copy);
    } else {
      copy_rows(a + row * g.lda + block.first, g.lda, rows, block.kc, copy);
    }
    fetch.rows = ahead_of_rows(g, a, row + rows, groups.size(group + 1), block);
    for (int64_t at = 0; at < block.columns; at += NR) {
      const Tile tile = tile_at(of_block, block.columns, c + row * g.ldc + block.column, at);
      (tile.columns > width ? two : one)(copy, packed + at * block.kc, block.kc, tile, fetch);
    }
  }
}

// The block of b that begins there or, where k ends, with the next columns. It has
// no columns if there are none.
inline PackedBlock block_at(const Gemm& g, int64_t column, int64_t first) {
  if (first > 0 && first >= g.k) return block_at(g, std::min(g.n, column + NC), 0);
  return {column, std::min(NC, g.n - column), first, std::min(KC, g.k - first)};
}

inline void blocked_gemm(const Gemm& g, const float* a, const float* b, float* c, float* packed) {
  for (PackedBlock block = block_at(g, 0, 0); block.columns > 0;) {
    // Where k is 0 there is a block, too, which writes c.
    const int64_t end = block.first + std::max<int64_t>(1, block.kc);
    const PackedBlock next = block_at(g, block.column, end);
    pack_block(g, b, block, packed);
    (g.trans_a ? multiply_block<true> : multiply_block<false>)(g, block, next, a, b, packed, c);
    block = next;
  }
}

inline constexpr BlockedFunctions blocked_functions = {blocked_gemm, packed_numbers};
