#include "kernels/gemm/float16.h"

#include <algorithm>

#include "kernels/float16_blocks.h"
#include "kernels/gemm/algorithms.h"
#include "kernels/gemm/blas.h"
#include "kernels/gemm/blocked.h"
#include "kernels/gemm/small.h"
#include "support/ceil_div.h"
#include "support/cpu/bf16_unit.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

BlasGemm<uint16_t, float> bf16_gemm() {
  static const auto function = find_symbol<BlasGemm<uint16_t, float>>("gemm_bf16bf16f32_");
  return function;
}

// Sums of a block lie in the second-level cache until they are rounded. Few blocks would leave
// threads idle: those of small results are smaller. But each row and column of a block is upcast
// for it alone, so blocks are not cut that have little to multiply.
constexpr int64_t largest_side = 512, few_blocks = 4, least_work = int64_t{1} << 22;
constexpr int64_t smallest_of_blas = 256, smallest_side = 64;
constexpr int64_t KC = 256;  // of upcast pieces
constexpr int64_t gap = 16;     // rows that lie a power of 2 apart share a set of the cache
constexpr int64_t few_rows = 16;  // of a, in small products

int64_t side_of(const Gemm& g, int64_t smallest) {
  int64_t side = largest_side;
  const auto are_few = [&] { return ceil_div(g.m, side) * ceil_div(g.n, side) < few_blocks; };
  while (side > smallest && are_few() && side / 2 * (side / 2) * g.k >= least_work) side /= 2;
  return side;
}

// Of n rows or columns, whole tiles, so many that parts are about as large as each other.
int64_t even_part(int64_t n, int64_t side, int64_t tile) {
  const int64_t parts = std::max<int64_t>(ceil_div(n, side), 1);
  return std::max<int64_t>(std::min(n, ceil_div(ceil_div(n, parts), tile) * tile), 1);
}

int64_t aligned(int64_t numbers) { return (numbers + 15) / 16 * 16; }

// Copies rows to f32, side by side and in their order; returns the distance of two of them.
int64_t upcast_rows(UpcastRows upcast, const uint16_t* from, int64_t leading, int64_t rows,
                   int64_t n, float* to) {
  upcast(from, to, {rows, n, leading, n + gap});
  return n + gap;
}

// All of the product's a or b, transposed or not.
int64_t upcast_a(UpcastRows upcast, const Gemm& g, const uint16_t* a, float* to) {
  return g.trans_a ? upcast_rows(upcast, a, g.lda, g.k, g.m, to)
                   : upcast_rows(upcast, a, g.lda, g.m, g.k, to);
}
int64_t upcast_b(UpcastRows upcast, const Gemm& g, const uint16_t* b, float* to) {
  return g.trans_b ? upcast_rows(upcast, b, g.ldb, g.n, g.k, to)
                   : upcast_rows(upcast, b, g.ldb, g.k, g.n, to);
}

GemmTable::Choice choice_of(const Gemm& g, ir::DType dtype) {
  return gemm_table().chosen({g, dtype, false, /*is_prepared=*/true});
}

}  // namespace

bool has_bf16_gemm() { return has_torch() && bf16_gemm() != nullptr; }

void bf16_blas_block(const Gemm& g, const uint16_t* a, const uint16_t* b, float* c) {
  call_blas(bf16_gemm(), g, a, b, c);
}

bool bf16_gemm_pays() { return computes_bf16() && gemm_by() == "library"; }

bool has_float16_gemm(const Gemm& g, ir::DType dtype) {
  return ir::is_half(dtype) && choice_of(g, dtype).row->make->takes_float16;
}

// A part of c, and of its sums.
struct Float16Gemm::Block {
  int64_t row, column, from;
  Gemm gemm;  // writes sums
};

Float16Gemm::Float16Gemm(const Gemm& g, ir::DType dtype) : gemm_(g) {
  const GemmTable::Choice choice = choice_of(g, dtype);
  *this = Float16Gemm(g, dtype, *choice.row->make);
  algorithm_ = choice.text();
}

Float16Gemm::Float16Gemm(const Gemm& g, ir::DType dtype, const GemmMethod& method)
    : gemm_(g), dtype_(dtype) {
  constexpr int64_t parts_of_sums = 8;  // not by the number of threads: the bits follow from it
  by_unit_ = &method == &split_k_method ? method_of_parts({g, dtype}).bf16 : method.bf16;
  small_ = &method == &small_method;
  if (&method == &split_k_method) deep_ = parts_of_sums;
  const int64_t side = side_of(g, by_unit_ == bf16_blas_block ? smallest_of_blas : smallest_side);
  rows_ = small_ ? std::max<int64_t>(g.m, 1) : even_part(g.m, side, method.row_tile);
  columns_ = small_ ? std::max<int64_t>(g.n, 1) : even_part(g.n, side, method.column_tile);
  down_ = ceil_div(g.m, rows_);
  across_ = ceil_div(g.n, columns_);
  sums_ = small_ ? 0 : aligned(rows_ * columns_);
  if (by_unit_ != nullptr) return;
  const int64_t deepest = (small_ ? g.k : std::min(ceil_div(g.k, deep_), KC)) + gap;
  piece_a_ = aligned((rows_ + gap) * deepest);
  piece_b_ = aligned((columns_ + gap) * deepest);
}

size_t Float16Gemm::scratch_bytes(int threads) const {
  const int64_t blocks = deep_ > 1 ? count() : threads;
  const int64_t numbers = blocks * sums_ + threads * (piece_a_ + piece_b_);
  return static_cast<size_t>(numbers) * sizeof(float);
}

Float16Gemm::Block Float16Gemm::block_at(int64_t index) const {
  const int64_t part = index % deep_, at = index / deep_;
  Block block{at / across_ * rows_, at % across_ * columns_, gemm_.k * part / deep_, gemm_};
  block.gemm.m = std::min(rows_, gemm_.m - block.row);
  block.gemm.n = std::min(columns_, gemm_.n - block.column);
  block.gemm.k = gemm_.k * (part + 1) / deep_ - block.from;
  block.gemm.ldc = block.gemm.n;
  if (part > 0) block.gemm.beta = 0;
  return block;
}

void Float16Gemm::sum(const Block& block, const uint16_t* a, const uint16_t* b, const uint16_t* c,
                   float* sums, float* pieces) const {
  const Gemm& g = block.gemm;
  const UpcastRows upcast = upcast_rows_from(dtype_);
  a += g.trans_a ? block.from * g.lda + block.row : block.row * g.lda + block.from;
  b += g.trans_b ? block.column * g.ldb + block.from : block.from * g.ldb + block.column;
  c += block.row * gemm_.ldc + block.column;
  if (g.beta != 0) upcast(c, sums, {g.m, g.n, gemm_.ldc, g.n});
  if (by_unit_ != nullptr) return by_unit_(g, a, b, sums);
  Gemm piece = g;
  float *wide_a = pieces, *wide_b = pieces + piece_a_;
  for (int64_t at = 0; at == 0 || at < g.k; at += KC) {
    piece.k = std::min(KC, g.k - at);
    Gemm wide = piece;
    wide.lda = upcast_a(upcast, piece, a + at * (g.trans_a ? g.lda : 1), wide_a);
    wide.ldb = upcast_b(upcast, piece, b + at * (g.trans_b ? 1 : g.ldb), wide_b);
    gemm_block(wide, wide_a, wide_b, sums);
    piece.beta = 1;
  }
}

void Float16Gemm::round(const Block& block, const float* sums, uint16_t* c) const {
  const Downcast downcast = downcast_to(dtype_);
  c += block.row * gemm_.ldc + block.column;
  const Gemm& g = block.gemm;
  if (g.n == gemm_.ldc) return downcast(sums, c, g.m * g.n);
  for (int64_t i = 0; i < g.m; ++i) downcast(sums + i * g.n, c + i * gemm_.ldc, g.n);
}

// Adds the parts of each sum up, in their order.
void Float16Gemm::join(float* sums, uint16_t* c) const {
  for (int64_t first = 0; first < count(); first += deep_) {
    const Block block = block_at(first);
    float* to = sums + first * sums_;
    for (int64_t part = 1; part < deep_; ++part) {
      const float* from = to + part * sums_;
      for (int64_t i = 0; i < block.gemm.m * block.gemm.n; ++i) to[i] += from[i];
    }
    round(block, to, c);
  }
}

// Pieces are whole operands. What few rows are multiplied with is upcast for those where it is
// read, which takes no longer than to read it.
void Float16Gemm::run_small(const uint16_t* a, const uint16_t* b, uint16_t* c,
                            float* pieces) const {
  const Gemm& g = gemm_;
  const UpcastRows upcast = upcast_rows_from(dtype_);
  const small::Float16Products& products = small::float16_products(dtype_);
  Gemm wide = g;
  wide.lda = upcast_a(upcast, g, a, pieces);
  if (!g.trans_b && g.m <= few_rows) return products.of_float16(wide, pieces, b, c);
  float* wide_b = pieces + piece_a_;
  wide.ldb = upcast_b(upcast, g, b, wide_b);
  products.of_f32(wide, pieces, wide_b, c);
}

void Float16Gemm::run(const uint16_t* a, const uint16_t* b, uint16_t* c, std::byte* scratch,
                   int threads) const {
  if (gemm_.m == 0 || gemm_.n == 0) return;
  if (small_) return run_small(a, b, c, reinterpret_cast<float*>(scratch));
  const int64_t blocks = count();
  const int64_t worth = gemm_.m * gemm_.n * std::max<int64_t>(gemm_.k, 1) / gemm_grain;
  const int64_t parts = std::clamp<int64_t>(std::min(blocks, worth), 1, threads);
  float* pieces = reinterpret_cast<float*>(scratch);
  float* sums = pieces + threads * (piece_a_ + piece_b_);
  parallel_parts(threads, parts, blocks, [&](int64_t part, int64_t begin, int64_t end) {
    float* own = pieces + part * (piece_a_ + piece_b_);
    for (int64_t i = begin; i < end; ++i) {
      const Block block = block_at(i);
      float* to = sums + (deep_ > 1 ? i : part) * sums_;
      sum(block, a, b, c, to, own);
      if (deep_ == 1) round(block, to, c);
    }
  });
  if (deep_ > 1) join(sums, c);
}

}  // namespace poptorch::kernels
