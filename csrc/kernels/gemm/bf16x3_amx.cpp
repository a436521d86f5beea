// The loops of bf16x3_gemm. For each block of k and of columns, the columns' parts are packed into
// panels of 32; then, for each block of rows, strips of 32 rows, which stay in the second-level
// cache while one panel after the other is multiplied with all of them and added to c.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/gemm/algorithms.h"
#include "kernels/gemm/bf16x3_tiles.h"
#include "support/align.h"

namespace poptorch::kernels {

namespace {

using namespace split;

constexpr int64_t depth_block = 768, row_block = 256, column_block = 1024;
constexpr int64_t panel_bytes = depth_block / step * step_bytes;

struct Buffers {
  alignas(64) std::byte rows[row_block / split_side * panel_bytes];
  std::byte columns[column_block / split_side * panel_bytes];
  float sums[split_side * split_side];
  bool rows_have_parts[row_block / split_side], columns_have_parts[column_block / split_side];
};

// One for each thread, made when it first multiplies.
Buffers& buffers() {
  struct Free {
    void operator()(Buffers* p) const { std::free(p); }
  };
  thread_local const std::unique_ptr<Buffers, Free> own(
      static_cast<Buffers*>(std::aligned_alloc(alignment_bytes, align_up(sizeof(Buffers)))));
  return *own;
}

// The strips of 32 lines of a panel: strip i goes to to + i * panel_bytes; have_parts[i] is false
// when some number of it has none. Memory is read in its own order.
template <bool left>
__attribute__((noinline)) void pack(const Operand& x, const Panel& all, std::byte* to,
                                    bool* have_parts) {
  const int64_t strips = all.strips(), steps = all.steps();
  const bool by_depth = x.depth == 1;
  std::fill(have_parts, have_parts + strips, true);
  for (int64_t n = 0; n < strips * steps; ++n) {
    const int64_t i = by_depth ? n / steps : n % strips, s = by_depth ? n % steps : n / strips;
    std::byte* packed = to + i * panel_bytes + s * step_bytes;
    have_parts[i] &= pack_step<left>(x, all.strip(i), all.begin + s * step, packed);
  }
}

// sums[32, 32] = rows * columns.
__attribute__((noinline)) void multiply(const std::byte* rows, const std::byte* columns,
                                        int64_t steps, float* sums) {
  clear_sums();
  for (int64_t i = 0; i < steps; ++i, rows += step_bytes, columns += step_bytes) {
    multiply_step(rows, part_bytes, columns);
  }
  store_sums(sums);
}

// One call, on one thread.
class Product {
 public:
  Product(const Gemm& g, const float* a, const float* b, float* c)
      : g_(g),
        c_(c),
        left_{a, g.trans_a ? 1 : g.lda, g.trans_a ? g.lda : 1},
        right_{b, g.trans_b ? g.ldb : 1, g.trans_b ? 1 : g.ldb} {}

  void run() {
    for (int64_t k = 0; k < g_.k; k += depth_block) {
      const int64_t end = std::min(k + depth_block, g_.k);
      for (int64_t column = 0; column < g_.n; column += column_block) {
        const Panel columns{column, std::min(column_block, g_.n - column), k, end};
        pack<false>(right_, columns, own_.columns, own_.columns_have_parts);
        for (int64_t row = 0; row < g_.m; row += row_block) {
          run_rows({row, std::min(row_block, g_.m - row), k, end}, columns);
        }
      }
    }
  }

 private:
  void run_rows(const Panel& rows, const Panel& columns) {
    pack<true>(left_, rows, own_.rows, own_.rows_have_parts);
    for (int64_t j = 0; j < columns.strips(); ++j) {
      for (int64_t i = 0; i < rows.strips(); ++i) {
        run_block(rows.strip(i), columns.strip(j), i, j);
      }
    }
  }

  // Block (i, j) of what is packed.
  void run_block(const Panel& rows, const Panel& columns, int64_t i, int64_t j) {
    prefetch(rows, columns);
    if (own_.rows_have_parts[i] && own_.columns_have_parts[j]) {
      multiply(own_.rows + i * panel_bytes, own_.columns + j * panel_bytes, rows.steps(),
               own_.sums);
    } else {
      multiply_plainly(rows, columns);
    }
    add(rows, columns);
  }

  float* at(int64_t row, int64_t column) const { return c_ + row * g_.ldc + column; }

  // While the unit works, c comes in.
  void prefetch(const Panel& rows, const Panel& columns) const {
    for (int64_t i = 0; i < rows.count; ++i) {
      const float* row = at(rows.first + i, columns.first);
      __builtin_prefetch(row, 1);
      __builtin_prefetch(row + columns.count - 1, 1);
    }
  }

  void multiply_plainly(const Panel& rows, const Panel& columns) const {
    Gemm block = g_;
    block.m = rows.count;
    block.n = columns.count;
    block.k = rows.end - rows.begin;
    block.ldc = split_side;
    block.alpha = 1;
    block.beta = 0;
    block.bias = block.scale = nullptr;
    block.relu = false;
    blas_block(block, left_.data + rows.first * left_.line + rows.begin * left_.depth,
               right_.data + columns.first * right_.line + rows.begin * right_.depth, own_.sums);
  }

  // c = alpha * scale * sums + beta * c for the first block of k; for the others what is there is
  // kept. The last one brings bias and relu.
  void add(const Panel& rows, const Panel& columns) const {
    const bool is_last = rows.end == g_.k;
    const float beta = rows.begin == 0 ? static_cast<float>(g_.beta) : 1.0F;
    const __m512 alpha = _mm512_set1_ps(static_cast<float>(g_.alpha));
    const __m512 old_factor = _mm512_set1_ps(beta);
    for (int64_t h = 0; h * lanes < columns.count; ++h) {
      const __mmask16 mask = first_lanes(columns.count - h * lanes);
      __m512 factor = alpha, bias = _mm512_setzero_ps();
      if (g_.scale != nullptr) {
        factor *= _mm512_maskz_loadu_ps(mask, g_.scale + columns.first + h * lanes);
      }
      if (is_last && g_.bias != nullptr) {
        bias = _mm512_maskz_loadu_ps(mask, g_.bias + columns.first + h * lanes);
      }
      for (int64_t i = 0; i < rows.count; ++i) {
        float* to = at(rows.first + i, columns.first + h * lanes);
        __m512 x = factor * _mm512_load_ps(own_.sums + i * split_side + h * lanes);
        if (beta != 0) x = _mm512_fmadd_ps(old_factor, _mm512_maskz_loadu_ps(mask, to), x);
        x += bias;
        if (is_last && g_.relu) {  // NaN stays
          const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
          x = _mm512_mask_mov_ps(x, negative, _mm512_setzero_ps());
        }
        _mm512_mask_storeu_ps(to, mask, x);
      }
    }
  }

  const Gemm& g_;
  float* c_;
  Operand left_, right_;
  Buffers& own_ = buffers();
};

}  // namespace

void bf16x3_gemm(const Gemm& g, const float* a, const float* b, float* c) {
  const Tiles tiles;
  Product(g, a, b, c).run();
}

}  // namespace poptorch::kernels
