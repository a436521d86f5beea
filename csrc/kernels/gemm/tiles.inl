// Tiles of a product: a few rows of a times a panel of b, whose columns are those of two vectors.
// Included by families inside the namespace of each_isa.h.

#include "kernels/simd/vec/transpose.inl"

using kernels::PackedSource;

constexpr int NR = 2 * width;
// Rows of a that are multiplied at once: their sums and what they need fill the registers.
constexpr int MR = SIMD_WIDTH == 16 ? 12 : 6;
// Terms that are added before the next panel's turn: so much of the rows stays in the first cache.
constexpr int64_t KC = 256;
// From one row of these to the next. No power of two, or they would contend for few cache lines.
constexpr int64_t row_stride = KC + 16;

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
inline int64_t panel_step(int64_t columns) { return columns > width ? NR : width; }

// Goes through columns that are packed as panels of two vectors (the last may have one), `words`
// deep: pack(first column, count, step, out) for the columns of each vector.
template <typename Pack>
inline void pack_each_vector(int64_t columns, int64_t words, float* packed, const Pack& pack) {
  for (int64_t at = 0; at < columns; at += width) {
    const int64_t panel = at / NR * NR;
    pack(at, std::min<int64_t>(width, columns - at), panel_step(columns - panel),
         packed + panel * words + (at - panel));
  }
}

// Columns of a part as such panels; lanes past them are 0.
inline void pack_columns(const PackedSource& from, const float* part, int64_t columns,
                         int64_t depth, float* packed) {
  const auto pack = [&](int64_t first, int64_t count, int64_t step, float* out) {
    pack_vector(from, part, first, count, depth, step, out);
  };
  pack_each_vector(columns, depth, packed, pack);
}

// Rows of a in groups that differ by one at most: few rows by themselves would be slow.
struct Groups {
  int64_t rows, count;

  explicit Groups(int64_t m, int64_t most = MR) : rows(m), count((m + most - 1) / most) {}
  int64_t begin(int64_t group) const { return rows * std::min(group, count) / count; }
  int64_t size(int64_t group) const { return begin(group + 1) - begin(group); }
};

// Some numbers of each of `rows` rows, side by side, `row_stride` apart.
inline void copy_rows(const float* from, int64_t stride, int64_t rows, int64_t kc, float* copy) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(copy + i * row_stride, from + i * stride,
                static_cast<size_t>(kc) * sizeof(float));
  }
}

// Some rows that lie transposed in memory, `stride` numbers from one column to the next: one column
// after the other, `rows` numbers each. Up to a vector past the end is written.
inline void copy_transposed(const float* from, int64_t stride, int64_t rows, int64_t kc,
                        float* copy) {
  for (int64_t p = 0; p < kc; ++p) {
    for (int64_t at = 0; at < rows; at += width) {
      store(copy + p * rows + at, load_lanes(from + p * stride + at, rows - at));
    }
  }
}

// Rows of numbers side by side that are read soon. A few cache lines at a time are fetched while a
// tile is multiplied, so that nothing has to wait for them when they are packed.
class Ahead {
 public:
  Ahead() = default;
  // In `steps` steps.
  template <typename T>
  Ahead(const T* at, int64_t stride, int64_t rows, int64_t run, int64_t steps)
      : at_(reinterpret_cast<const char*>(at)),
        stride_(stride * int64_t{sizeof(T)}),
        rows_(run > 0 ? rows : 0),
        run_(run * int64_t{sizeof(T)}) {
    const int64_t lines = (run_ + 2 * (line - 1)) / line;  // of a row, wherever it begins
    lines_ = (rows * lines + steps - 1) / steps;
  }

  void step() {
    for (int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
      __builtin_prefetch(at_ + std::min(done_, run_ - 1));
      done_ += line;
      if (done_ < run_ + line - 1) continue;
      done_ = 0;
      at_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr int64_t line = alignment_bytes;
  const char* at_ = nullptr;
  int64_t stride_ = 0, rows_ = 0, run_ = 0, lines_ = 0, done_ = 0;  // in bytes
};

// The next rows of a, and the next part of b.
struct Fetch {
  Ahead rows = {}, part = {};

  void step() {
    rows.step();
    part.step();
  }
};

// The depth of a step, and the steps of a tile; a tile of depth 0 counts one.
constexpr int64_t step_depth = 16;
inline int64_t steps_of(int64_t kc) {
  return std::max<int64_t>(1, (kc + step_depth - 1) / step_depth);
}

// Where a tile of c is, with `columns` numbers in each row, and how its sums are stored: as in
// kernels::Gemm, with scale and bias of these columns. When beta is 1 the sums of another part of k
// are in c already.
struct Tile {
  float* c = nullptr;
  int64_t stride = 0, columns = 0;
  float alpha = 1, beta = 0;
  const float *scale = nullptr, *bias = nullptr;
  bool relu = false;
};

// The tile that begins at column `at` of `columns`; `c` is that of column 0.
inline Tile tile_at(const Tile& of_all, int64_t columns, float* c, int64_t at) {
  Tile tile = of_all;
  tile.c = c + at;
  tile.columns = std::min<int64_t>(NR, columns - at);
  if (tile.scale != nullptr) tile.scale += at;
  if (tile.bias != nullptr) tile.bias += at;
  return tile;
}

// Numbers of the columns of a vector; of a `whole` one none is missing.
template <bool whole>
vf load_columns(const float* from, int64_t lanes) {
  return whole ? load(from) : load_part(from, lanes);
}

// Writes the sums of vector j of a tile. Each step is one for all rows: whether it is to be done is
// tested once, and the sums stay in registers.
template <bool whole, int R, int V>
[[gnu::always_inline]] inline void put_vectors(vf (&sums)[R][V], int j, const Tile& tile) {
  const int64_t lanes = whole ? width : std::clamp<int64_t>(tile.columns - j * width, 0, width);
  float* c = tile.c + j * width;
  vf factor = splat(tile.alpha);
  if (tile.scale != nullptr) factor *= load_columns<whole>(tile.scale + j * width, lanes);
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) sums[i][j] *= factor;
  if (tile.beta != 0) {
    const vf beta = splat(tile.beta);
#pragma GCC unroll 24
    for (int i = 0; i < R; ++i) {
      sums[i][j] = multiply_add(beta, load_columns<whole>(c + i * tile.stride, lanes), sums[i][j]);
    }
  }
  if (tile.bias != nullptr) {
    const vf bias = load_columns<whole>(tile.bias + j * width, lanes);
#pragma GCC unroll 24
    for (int i = 0; i < R; ++i) sums[i][j] += bias;
  }
  if (tile.relu) {
#pragma GCC unroll 24
    for (int i = 0; i < R; ++i) sums[i][j] = select(sums[i][j] < 0, vf{}, sums[i][j]);
  }
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) {
    float* to = c + i * tile.stride;
    whole ? store(to, sums[i][j]) : store_part(to, sums[i][j], lanes);
  }
}

// Writes the sums of a tile.
template <int R, int V>
[[gnu::always_inline]] inline void put_tile(vf (&sums)[R][V], const Tile& tile) {
  if (tile.columns == V * width) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) put_vectors<true>(sums, j, tile);
  } else {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) put_vectors<false>(sums, j, tile);
  }
}

// Sums before the first update. The lines of the tile, used after the last one, are fetched.
template <int R, int V>
[[gnu::always_inline]] inline void begin_tile(vf (&sums)[R][V], const Tile& tile) {
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      sums[i][j] = vf{};
      __builtin_prefetch(tile.c + i * tile.stride + j * width, 1);
    }
  }
}

// What a lane of a tile holds of its operands: a float.
struct Floats {
  static vf every_lane(const float* number) { return splat(*number); }
  static vf add_product(vf number, vf x, vf sum) { return multiply_add(number, x, sum); }
};

// How numbers of type T are packed: in words of 32 bits, of one number or of some that follow each
// other in depth.
//   Product                what a tile does with a word of both operands, as Floats;
//   of(depth)              words of numbers so many deep;
//   first_numbers(words)   of each the first one, and 0 for the other.
template <typename T>
struct Words;
template <>
struct Words<float> {
  using Product = Floats;
  static constexpr int64_t numbers = 1;
  static constexpr int64_t of(int64_t depth) { return depth; }
  static vf first_numbers(vf words) { return words; }
};

// Adds V vectors side by side times a number of each row, which are `apart` from each other.
template <typename Product = Floats, int R, int V>
[[gnu::always_inline]] inline void rank_1_update(vf (&sums)[R][V], const float* numbers,
                                                 int64_t apart, const float* vectors) {
  vf x[V];
#pragma GCC unroll 2
  for (int j = 0; j < V; ++j) x[j] = load(vectors + j * width);
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) {
    const vf number = Product::every_lane(numbers + i * apart);
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) sums[i][j] = Product::add_product(number, x[j], sums[i][j]);
  }
}

// get<R>() for a number of rows that is known only now, from 1 to `most`: loops for R rows, say.
template <int most, typename Get>
inline auto for_rows(int64_t rows, Get) {
  return [&]<int... i>(std::integer_sequence<int, i...>) {
    static constexpr decltype(Get{}.template operator()<1>()) all[] = {
        Get{}.template operator()<i + 1>()...};
    return all[rows - 1];
  }(std::make_integer_sequence<int, most>{});
}

// A tile of R rows and V vectors, `kc` deep. The rows are those of copy_transposed or, if
// not `transposed`, of copy_rows.
template <typename Product, bool transposed, int R, int V>
void multiply_tile(const float* rows, const float* panel, int64_t kc, const Tile& tile,
                   Fetch& fetch) {
  vf sums[R][V];
  begin_tile(sums, tile);
  for (int64_t p = 0; p < kc;) {
    for (const int64_t end = std::min(kc, p + step_depth); p < end; ++p) {
      const float* numbers = rows + p * (transposed ? R : 1);
      rank_1_update<Product>(sums, numbers, transposed ? 1 : row_stride, panel + p * V * width);
    }
    fetch.step();
  }
  put_tile(sums, tile);
}

template <bool transposed, int V, typename Product = Floats>
inline auto tile_of(int64_t rows) {
  return for_rows<MR>(rows, []<int R>() { return &multiply_tile<Product, transposed, R, V>; });
}

