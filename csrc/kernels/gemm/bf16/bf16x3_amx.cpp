// The loops of bf16x3_gemm. For each block of k and of columns, the columns' parts are packed into
// micro-panels of 32; then, for each block of rows, into micro-panels of 32 rows, which stay in the
// second-level cache while those of columns are multiplied with all of them, one after the other.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/gemm/algorithms.h"
#include "kernels/gemm/bf16/bf16x3_tiles.h"
#include "support/memory/align.h"

namespace poptorch::kernels {

namespace {

using namespace bf16x3;

constexpr int64_t KC = 768, MC = 256, NC = 1024;
constexpr int64_t panel_bytes = KC / step * step_bytes;

struct Buffers {
  alignas(64) std::byte rows[MC / bf16x3_side * panel_bytes];
  std::byte columns[NC / bf16x3_side * panel_bytes];
  float sums[bf16x3_side * bf16x3_side];
  bool rows_have_parts[MC / bf16x3_side], columns_have_parts[NC / bf16x3_side];
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

// The micro-panels of 32 lines of a panel: number i goes to to + i * panel_bytes; have_parts[i] is
// false when some number of it has none. Memory is read in its own order.
template <bool left>
__attribute__((noinline)) void pack(const Operand& x, const Panel& all, std::byte* to,
                                    bool* have_parts) {
  const int64_t count = all.micro_panels(), steps = all.steps();
  const bool by_depth = x.depth == 1;
  std::fill(have_parts, have_parts + count, true);
  for (int64_t n = 0; n < count * steps; ++n) {
    const int64_t i = by_depth ? n / steps : n % count, s = by_depth ? n % steps : n / count;
    std::byte* packed = to + i * panel_bytes + s * step_bytes;
    have_parts[i] &= pack_step<left>(x, all.micro_panel(i), all.begin + s * step, packed);
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
    for (int64_t k = 0; k < g_.k; k += KC) {
      const int64_t end = std::min(k + KC, g_.k);
      for (int64_t column = 0; column < g_.n; column += NC) {
        const Panel columns{column, std::min(NC, g_.n - column), k, end};
        pack<false>(right_, columns, own_.columns, own_.columns_have_parts);
        for (int64_t row = 0; row < g_.m; row += MC) {
          run_rows({row, std::min(MC, g_.m - row), k, end}, columns);
        }
      }
    }
  }

 private:
  void run_rows(const Panel& rows, const Panel& columns) {
    pack<true>(left_, rows, own_.rows, own_.rows_have_parts);
    for (int64_t j = 0; j < columns.micro_panels(); ++j) {
      for (int64_t i = 0; i < rows.micro_panels(); ++i) {
        run_block(rows.micro_panel(i), columns.micro_panel(j), i, j);
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
    block.ldc = bf16x3_side;
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
        __m512 x = factor * _mm512_load_ps(own_.sums + i * bf16x3_side + h * lanes);
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
