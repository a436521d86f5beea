// Products of f16 matrices whose sums are kept in f16: 16 products are summed in f32, and that sum
// is added to one that is rounded to f16 each time. The operands are f16 numbers in f32, so that
// each product is exact, and so no instruction set rounds otherwise than another.
#pragma once

#include <cstdint>

namespace poptorch::simd {

constexpr int64_t partials_chunk = 16;    // products that are summed in f32
constexpr int64_t partials_nr = 64;  // of a panel: that many columns of b, row-major

struct Float16PartialsTable {
  // totals += a b for `rows` rows of a, `lda` numbers apart, and a panel of `depth` rows; rounded
  // after each chunk. totals is [rows, partials_nr].
  void (*add_product)(const float* a, int64_t lda, int64_t rows, const float* panel, int64_t depth,
                      float* totals);
  // The same for one row and at most one chunk, not rounded.
  void (*add_chunk)(const float* a, const float* panel, int64_t depth, float* totals);
};
const Float16PartialsTable& float16_partials_table();

}  // namespace poptorch::simd
