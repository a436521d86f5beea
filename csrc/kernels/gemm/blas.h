// The BLAS that torch has. Its functions are looked up and not linked: which library it is depends
// on torch's build.
#pragma once

#include "kernels/gemm/gemm.h"
#include "support/loading/torch_library.h"

namespace poptorch::kernels {

// nullptr when torch has none. Loads torch.
template <typename Function>
Function find_symbol(const char* name) {
  return reinterpret_cast<Function>(torch_function(name));
}

// Sets how many threads MKL uses for calls of this thread and returns the number before; nullptr
// without MKL. (The lower-case name is another function, which takes a pointer.)
inline auto set_mkl_threads() -> int (*)(int) {
  static const auto function = find_symbol<int (*)(int)>("MKL_Set_Num_Threads_Local");
  return function;
}

// Keeps MKL on the calling thread while it exists: our kernels cut the work, not MKL, whose
// own cut changes the order of sums with the number of threads.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas() {
    if (set_mkl_threads() != nullptr) before_ = set_mkl_threads()(1);
  }
  ~SingleThreadedBlas() {
    if (set_mkl_threads() != nullptr) set_mkl_threads()(before_);
  }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int before_ = 0;
};

// A product of matrices of T whose sums are S. The Fortran interface: column-major, everything by
// pointer.
template <typename T, typename S>
using BlasGemm = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n,
                          const int* k, const S* alpha, const T* a, const int* lda, const T* b,
                          const int* ldb, const S* beta, S* c, const int* ldc);

template <typename T, typename S>
void call_blas(BlasGemm<T, S> function, const Gemm& g, const T* a, const T* b, S* c) {
  // A row-major matrix is the transpose of a column-major one: c^T = op(b)^T op(a)^T.
  const int m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  const int lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb);
  const int ldc = static_cast<int>(g.ldc);
  const S alpha = static_cast<S>(g.alpha), beta = static_cast<S>(g.beta);
  const SingleThreadedBlas single;
  function(g.trans_b ? "T" : "N", g.trans_a ? "T" : "N", &n, &m, &k, &alpha, b, &ldb, a, &lda,
           &beta, c, &ldc);
}

}  // namespace poptorch::kernels
