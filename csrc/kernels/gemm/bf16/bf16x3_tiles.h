// How f32 numbers get into the tiles of the unit for bfloat16 products, in three parts each. Only
// for the files that are compiled for that unit; gemm/bf16/bf16x3.h says what the parts are.
//
// A step is 32 of k. The unit multiplies a tile of 16 rows with a tile of 16 columns, 16 pairs of k
// in each, and pair p of a step is k = p and k = p + 16: a pair is then two loads and a blend.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm/bf16/bf16x3.h"
#include "support/ceil_div.h"

namespace poptorch::kernels::bf16x3 {

constexpr int64_t lanes = 16, step = 32, parts = 3;
constexpr int64_t tile_bytes = 1024, part_bytes = 2 * tile_bytes, step_bytes = parts * part_bytes;

// An operand as lines of k: entry i of line j lies at j * line + i * depth. One of the two is 1.
struct Operand {
  const float* data;
  int64_t line, depth;
};

// A part of an operand: `count` lines from `first` on, k in [begin, end).
struct Panel {
  int64_t first, count, begin, end;

  int64_t steps() const { return ceil_div(end - begin, step); }
  int64_t micro_panels() const { return ceil_div(count, bf16x3_side); }
  Panel micro_panel(int64_t i) const {
    const int64_t skipped = i * bf16x3_side;
    return {first + skipped, std::min(bf16x3_side, count - skipped), begin, end};
  }
};

inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(n, 0, lanes)) - 1);
}

inline void transpose(__m512* r) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  const auto pairs = [](__m512 x, __m512 y, bool high) {
    const __m512d a = _mm512_castps_pd(x), b = _mm512_castps_pd(y);
    return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
  };
  // Quarter q of r[4 i + j] becomes column 4 q + j of rows 4 i to 4 i + 3.
  for (int i = 0; i < 16; i += 4) {
    r[i] = pairs(t[i], t[i + 2], false);
    r[i + 1] = pairs(t[i], t[i + 2], true);
    r[i + 2] = pairs(t[i + 1], t[i + 3], false);
    r[i + 3] = pairs(t[i + 1], t[i + 3], true);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512 even_up = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88);
    const __m512 even_down = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88);
    const __m512 odd_up = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
    const __m512 odd_down = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_f32x4(even_up, even_down, 0x88);
    t[8 + j] = _mm512_shuffle_f32x4(even_up, even_down, 0xdd);
    t[4 + j] = _mm512_shuffle_f32x4(odd_up, odd_down, 0x88);
    t[12 + j] = _mm512_shuffle_f32x4(odd_up, odd_down, 0xdd);
  }
  std::copy_n(t, 16, r);
}

// 16 rows of 16 neighbours in memory, zero beyond `rows` and `columns`.
inline void load_square(const float* from, int64_t stride, int64_t rows, int64_t columns,
                        __m512* to) {
  if (rows >= lanes && columns >= lanes) {
    for (int64_t i = 0; i < lanes; ++i) to[i] = _mm512_loadu_ps(from + i * stride);
    return;
  }
  const __mmask16 mask = first_lanes(columns);
  for (int64_t i = 0; i < lanes; ++i) {
    to[i] = i < rows ? _mm512_maskz_loadu_ps(mask, from + i * stride) : _mm512_setzero_ps();
  }
}

// bfloat16 numbers as the upper halves of f32; of `low` the lower half is zero, as it is exact.
struct Parts {
  __m512i high, middle, low;

  explicit Parts(__m512 x) {
    high = upper(x);
    const __m512 rest = x - _mm512_castsi512_ps(high);
    middle = upper(rest);
    low = _mm512_castps_si512(rest - _mm512_castsi512_ps(middle));
  }

 private:
  static __m512i upper(__m512 x) {
    const __m512i half = _mm512_set1_epi32(0x8000), mask = _mm512_set1_epi32(-0x10000);
    return _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), mask);
  }
};

inline void store_pairs(__m512i first, __m512i second, std::byte* to) {
  constexpr __mmask32 upper_halves = 0xaaaaaaaa;
  const __m512i low = _mm512_srli_epi32(first, 16);
  _mm512_store_si512(to, _mm512_mask_blend_epi16(upper_halves, low, second));
}

// The largest of what was looked at: twice the bits, without the sign.
inline __m512i larger(__m512i largest, __m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  return _mm512_max_epu32(largest, _mm512_add_epi32(bits, bits));
}

inline bool have_parts(__m512i largest) {
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(2 * 0x7f000000u));  // 2^127
  return _mm512_cmpge_epu32_mask(largest, limit) == 0;
}

// Packs one tile of a step, in all parts, from vectors that lie `apart`. Returns false when some
// number has none.
inline bool pack_tile(const __m512* first, const __m512* second, int64_t apart, std::byte* to) {
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < lanes; ++i, first += apart, second += apart) {
    largest = larger(larger(largest, *first), *second);
    const Parts x(*first), y(*second);
    store_pairs(x.high, y.high, to + i * 64);
    store_pairs(x.middle, y.middle, to + part_bytes + i * 64);
    store_pairs(x.low, y.low, to + 2 * part_bytes + i * 64);
  }
  return have_parts(largest);
}

// Packs the step that begins at `k` of up to 32 lines. The tiles of the left-hand operand have a
// line in each row, those of the right-hand one a pair of k.
template <bool left>
bool pack_step(const Operand& x, const Panel& p, int64_t k, std::byte* to) {
  const bool by_depth = x.depth == 1;
  bool all_have_parts = true;
  __m512 halves[2][lanes];
  for (int64_t t = 0; t < 2; ++t) {
    const int64_t line = p.first + t * lanes, lines = p.count - t * lanes;
    for (int64_t h = 0; h < 2; ++h) {
      const int64_t depth = k + h * lanes, depths = p.end - depth;
      const float* from = x.data + line * x.line + depth * x.depth;
      if (by_depth) {
        load_square(from, x.line, lines, depths, halves[h]);
      } else {
        load_square(from, x.depth, depths, lines, halves[h]);
      }
      if (left != by_depth) transpose(halves[h]);
    }
    all_have_parts &= pack_tile(halves[0], halves[1], 1, to + t * tile_bytes);
  }
  return all_have_parts;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tile registers, while it lives.
class Tiles {
 public:
  Tiles() {
    const TileConfig config;
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Registers 0 to 3 are the sums of 32 rows times 32 columns, 4 and 5 rows, 6 and 7 columns.
inline void clear_sums() {
  asm volatile("" ::: "memory");  // tile loads do not say which memory they read
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

#define LOAD_ROWS(part)                            \
  _tile_loadd(4, rows + (part) * rows_part, 64);   \
  _tile_loadd(5, rows + (part) * rows_part + tile_bytes, 64)
#define LOAD_COLUMNS(part)                           \
  _tile_loadd(6, columns + (part) * part_bytes, 64); \
  _tile_loadd(7, columns + (part) * part_bytes + tile_bytes, 64)
#define MULTIPLY()         \
  _tile_dpbf16ps(0, 4, 6); \
  _tile_dpbf16ps(1, 4, 7); \
  _tile_dpbf16ps(2, 5, 6); \
  _tile_dpbf16ps(3, 5, 7)

// Adds one step. The parts of the rows lie `rows_part` bytes apart. From one product of parts to
// the next only one side changes.
__attribute__((always_inline)) inline void multiply_step(const std::byte* rows, int64_t rows_part,
                                                         const std::byte* columns) {
  constexpr int high = 0, middle = 1, low = 2;
  LOAD_ROWS(high);
  LOAD_COLUMNS(low);
  MULTIPLY();
  LOAD_COLUMNS(middle);
  MULTIPLY();
  LOAD_ROWS(middle);
  MULTIPLY();
  LOAD_COLUMNS(high);
  MULTIPLY();
  LOAD_ROWS(low);
  MULTIPLY();
  LOAD_ROWS(high);
  MULTIPLY();
}

#undef LOAD_ROWS
#undef LOAD_COLUMNS
#undef MULTIPLY

inline void store_sums(float* sums) {
  constexpr int64_t stride = bf16x3_side * sizeof(float);
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + lanes, stride);
  _tile_stored(2, sums + lanes * bf16x3_side, stride);
  _tile_stored(3, sums + lanes * bf16x3_side + lanes, stride);
}

}  // namespace poptorch::kernels::bf16x3
