// The loops of blocked products, of each type of numbers T: floats (gemm/blocked.inl), or bfloat16
// numbers, two of them in a 32-bit word (gemm/bf16/bf16_loops_avx512bf16.cpp). Included after
// gemm/tiles.inl and
//
//   Words<T>             see gemm/tiles.inl;
//   pack_panels(const T* b, stride, by_column, columns, depth, packed)   as pack_columns;
//   copy_rows(const T* ...), copy_transposed(const T* ...)   as those of floats, of words.

using kernels::Gemm;

// Columns of b that are packed at once: KC words deep they take half of a second cache.
constexpr int64_t NC = 512;
constexpr int64_t packed_words = NC * KC;

// Columns [column, column + columns) of b, `kc` deep, from depth `first` on.
struct PackedBlock {
  int64_t column, columns, first, kc;
};

template <typename T>
const T* first_of(const Gemm& g, const T* b, const PackedBlock& block) {
  const int64_t row = g.trans_b ? block.column : block.first;
  return b + row * g.ldb + (g.trans_b ? block.first : block.column);
}

inline int64_t tiles_of(const PackedBlock& block) {
  return (block.columns + NR - 1) / NR;
}

template <typename T>
Ahead ahead_of_rows(const Gemm& g, const T* a, int64_t row, int64_t rows, const PackedBlock& block,
                    int64_t steps) {
  if (g.trans_a) return {a + block.first * g.lda + row, g.lda, block.kc, rows, steps};
  return {a + row * g.lda + block.first, g.lda, rows, block.kc, steps};
}

template <typename T>
Ahead ahead_of_block(const Gemm& g, const T* b, const PackedBlock& block, int64_t steps) {
  const int64_t rows = g.trans_b ? block.columns : block.kc;
  const int64_t run = g.trans_b ? block.kc : block.columns;
  return {first_of(g, b, block), g.ldb, rows, run, steps};
}

// How the sums of a block are stored.
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
template <bool transposed, typename T>
void multiply_block(const Gemm& g, const PackedBlock& block, const PackedBlock& next, const T* a,
                    const T* b, const float* packed, float* c) {
  alignas(alignment_bytes) float copy[MR * row_stride];
  using Product = typename Words<T>::Product;
  const Groups groups(g.m);
  const Tile of_block = tile_of_block(g, block);
  const int64_t words = Words<T>::of(block.kc), steps = tiles_of(block) * steps_of(words);
  Fetch fetch{{}, ahead_of_block(g, b, next, groups.count * steps)};
  for (int64_t group = 0; group < groups.count; ++group) {
    const int64_t row = groups.begin(group), rows = groups.size(group);
    const auto two = tile_of<transposed, 2, Product>(rows);
    const auto one = tile_of<transposed, 1, Product>(rows);
    if (transposed) {
      copy_transposed(a + block.first * g.lda + row, g.lda, rows, block.kc, copy);
    } else {
      copy_rows(a + row * g.lda + block.first, g.lda, rows, block.kc, copy);
    }
    fetch.rows = ahead_of_rows(g, a, row + rows, groups.size(group + 1), block, steps);
    for (int64_t at = 0; at < block.columns; at += NR) {
      const Tile tile = tile_at(of_block, block.columns, c + row * g.ldc + block.column, at);
      (tile.columns > width ? two : one)(copy, packed + at * words, words, tile, fetch);
    }
  }
}

// The block of b that begins there, at most `deepest` deep, or, where k ends, with the next
// columns. It has no columns if there are none.
inline PackedBlock block_at(const Gemm& g, int64_t deepest, int64_t column, int64_t first) {
  if (first > 0 && first >= g.k) return block_at(g, deepest, std::min(g.n, column + NC), 0);
  return {column, std::min(NC, g.n - column), first, std::min(deepest, g.k - first)};
}

template <typename T>
void multiply_by_blocks(const Gemm& g, const T* a, const T* b, float* c, float* packed) {
  constexpr int64_t deepest = KC * KC / Words<T>::of(KC);
  for (PackedBlock block = block_at(g, deepest, 0, 0); block.columns > 0;) {
    // Where k is 0 there is a block, too, which writes c.
    const int64_t end = block.first + std::max<int64_t>(1, block.kc);
    const PackedBlock next = block_at(g, deepest, block.column, end);
    pack_panels(first_of(g, b, block), g.ldb, g.trans_b, block.columns, block.kc, packed);
    (g.trans_a ? multiply_block<true, T> : multiply_block<false, T>)(g, block, next, a, b, packed,
                                                                     c);
    block = next;
  }
}
