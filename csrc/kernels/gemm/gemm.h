// Products of two matrices in memory; every kernel that multiplies matrices calls this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace poptorch::kernels {

// c = alpha * op(a) * op(b) + beta * c, all row-major: op(a) is m x k, op(b) is k x n. `trans_a`
// says that a is stored as k x m. Leading dimensions (elements from one row in memory to the
// next) may be larger than a row. With beta = 0, c is not read.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  double alpha = 1, beta = 0;
  // Of f32 products: bias[j] is added to column j of c; then numbers below 0 become 0.
  const float* bias = nullptr;
  // Only where takes_scale says so: scale[j] is a factor of column j in addition to alpha.
  const float* scale = nullptr;
  bool relu = false;
};

struct GemmMethod;

// A product whose algorithm (gemm/algorithms.h) is chosen, once for all its runs. T: float and
// double, uint8_t, int8_t, int16_t, int32_t, int64_t (wrapping; alpha and beta are truncated).
template <typename T>
class PreparedGemm {
 public:
  using Element = T;
  explicit PreparedGemm(const Gemm& g);
  // By this one of the table.
  PreparedGemm(const Gemm& g, const GemmMethod& method);

  // As plans show it: "blas".
  const std::string& algorithm() const { return algorithm_; }

  // Each element's sum is taken in the same order whatever `threads` is. Within a parallel region
  // it runs on the calling thread.
  void run(const T* a, const T* b, T* c, int threads) const;

  // As Float16Gemm: it needs no scratch memory.
  size_t scratch_bytes(int) const { return 0; }
  void run(const T* a, const T* b, T* c, std::byte*, int threads) const { run(a, b, c, threads); }

 private:
  Gemm gemm_;
  std::string algorithm_;
  const GemmMethod* method_;
  bool splits_;  // sums, into parts that the method computes
};

// The same, for products that are known when they are needed only.
template <typename T>
void gemm(const Gemm& g, const T* a, const T* b, T* c, int threads);

// The same for a product that is itself a block of a larger computation, cut by its kernel into
// blocks that do not depend on the number of threads: in one piece, on the calling thread. T: float
// and double.
template <typename T>
void gemm_block(const Gemm& g, const T* a, const T* b, T* c);

// Whether a BLAS, which counts in an int, can be given the product.
inline bool fits_blas(const Gemm& g) {
  return std::max({g.m, g.n, g.k, g.lda, g.ldb, g.ldc}) <= std::numeric_limits<int>::max();
}

// Whether gemm of f32 applies a scale to a product of these sizes.
bool takes_scale(const Gemm& g);

// Multiplications worth giving to another thread.
constexpr int64_t gemm_grain = 1 << 19;

}  // namespace poptorch::kernels
