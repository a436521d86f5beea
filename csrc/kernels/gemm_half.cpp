#include "kernels/gemm_half.h"

#include <algorithm>

#include "kernels/blas.h"
#include "kernels/half_blocks.h"
#include "kernels/simd/isa.h"
#include "support/parallel.h"
#include "support/switches.h"

namespace poptorch::kernels {

namespace {

// The Fortran interface: column-major, everything by pointer.
using Product = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n,
                         const int* k, const float* alpha, const uint16_t* a, const int* lda,
                         const uint16_t* b, const int* ldb, const float* beta, float* c,
                         const int* ldc);

Product product() {
  static const auto function = find_symbol<Product>("gemm_bf16bf16f32_");
  return function;
}

// Sums of a block lie in the second-level cache until they are rounded. Few blocks would leave
// threads idle: those of small results are smaller.
constexpr int64_t large_block = 512, small_block = 256, few_blocks = 8;

struct Blocks {
  int64_t rows, columns;  // of one
  int64_t down, across;   // how many

  explicit Blocks(const Gemm& g) {
    const auto count = [](int64_t n, int64_t side) { return (n + side - 1) / side; };
    const int64_t large = count(g.m, large_block) * count(g.n, large_block);
    const int64_t side = large < few_blocks ? small_block : large_block;
    rows = std::min(g.m, side);
    columns = std::min(g.n, side);
    down = count(g.m, side);
    across = count(g.n, side);
  }

  int64_t sums() const { return (rows * columns + 15) / 16 * 16; }
};

void one_block(const Gemm& g, const uint16_t* a, const uint16_t* b, uint16_t* c, float* sums) {
  const Widen widen = widen_from(ir::DType::bf16);
  const Narrow narrow = narrow_to(ir::DType::bf16);
  for (int64_t i = 0; g.beta != 0 && i < g.m; ++i) widen(c + i * g.ldc, sums + i * g.n, g.n);
  // A row-major matrix is the transpose of a column-major one: c^T = op(b)^T op(a)^T.
  const int m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  const int lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb);
  const auto alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  const SingleThreadedBlas single;
  product()(g.trans_b ? "T" : "N", g.trans_a ? "T" : "N", &n, &m, &k, &alpha, b, &ldb, a, &lda,
            &beta, sums, &n);
  for (int64_t i = 0; i < g.m; ++i) narrow(sums + i * g.n, c + i * g.ldc, g.n);
}

}  // namespace

bool computes_bf16() {
  return simd::isa() == simd::Isa::avx512 && __builtin_cpu_supports("avx512bf16") &&
         is_on("half_products");
}

bool has_bf16_gemm() { return product() != nullptr && computes_bf16(); }

size_t bf16_gemm_scratch(const Gemm& g, int threads) {
  return static_cast<size_t>(Blocks(g).sums() * threads) * sizeof(float);
}

void gemm_bf16(const Gemm& g, const uint16_t* a, const uint16_t* b, uint16_t* c, std::byte* scratch,
               int threads) {
  if (g.m == 0 || g.n == 0) return;
  const Blocks blocks(g);
  const int64_t count = blocks.down * blocks.across;
  const int64_t worth = g.m * g.n * std::max<int64_t>(g.k, 1) / gemm_grain;
  const int64_t parts = std::clamp<int64_t>(std::min(count, worth), 1, threads);
  parallel_for(threads, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      float* sums = reinterpret_cast<float*>(scratch) + part * blocks.sums();
      for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
        const int64_t row = i / blocks.across * blocks.rows;
        const int64_t column = i % blocks.across * blocks.columns;
        Gemm block = g;
        block.m = std::min(blocks.rows, g.m - row);
        block.n = std::min(blocks.columns, g.n - column);
        one_block(block, a + (g.trans_a ? row : row * g.lda),
                  b + (g.trans_b ? column * g.ldb : column), c + row * g.ldc + column, sums);
      }
    }
  });
}

}  // namespace poptorch::kernels
