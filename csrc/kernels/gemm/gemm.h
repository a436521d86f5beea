// Products of two matrices in memory; every kernel that multiplies matrices calls this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace poptorch::kernels {

// c = alpha * op(a) * op(b) + beta * c, all row-major: op(a) is m x k, op(b) is k x n. `trans_a`
// says that a lies in memory as k x m. Leading dimensions (elements from one row in memory to the
// next) may be larger than a row. With beta = 0, c is not read.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  double alpha = 1, beta = 0;
  // Of f32 products: bias[j] is added to column j of c; then numbers below 0 become 0.
  const float* bias = nullptr;
  // Only where takes_scale says so: scale[j] is a factor of column j beside alpha.
  const float* scale = nullptr;
  bool relu = false;
};

// T: float and double (by the BLAS that torch has loaded), uint8_t, int8_t, int16_t, int32_t,
// int64_t (wrapping; alpha and beta are truncated). Each element's sum is taken in the same order
// whatever `threads` is. Within a parallel region it runs on the calling thread.
template <typename T>
void gemm(const Gemm& g, const T* a, const T* b, T* c, int threads);

// The same for a product that is itself a block of a larger computation, cut by its kernel into
// blocks that do not depend on the number of threads: in one piece, on the calling thread.
template <typename T>
void gemm_block(const Gemm& g, const T* a, const T* b, T* c);

// Whether a BLAS, which counts in an int, can be given the product.
inline bool fits_blas(const Gemm& g) {
  return std::max({g.m, g.n, g.k, g.lda, g.ldb, g.ldc}) <= std::numeric_limits<int>::max();
}

// Whether gemm of f32 applies a scale to a product of these sizes.
bool takes_scale(const Gemm& g);

// A small c with a long sum, as weight gradients are: threads have only the sum to share.
bool is_deep(const Gemm& g);

// Multiplications worth giving to another thread.
constexpr int64_t gemm_grain = 1 << 19;

}  // namespace poptorch::kernels
