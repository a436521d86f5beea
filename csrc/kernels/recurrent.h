// What recurrent layers share: one direction over [time, batch, ...], and the products with the
// weights that do not depend on the order of time, each as one large GEMM.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

struct Recurrence {
  int64_t time, batch, input, hidden;
  bool reverse;

  // `first`: the position of x among the operands; h0 follows it.
  Recurrence(const ops::Call& call, size_t first);

  // The time of the k-th step.
  int64_t at(int64_t k) const { return reverse ? time - 1 - k : k; }
  int64_t rows() const { return time * batch; }
  int64_t state() const { return batch * hidden; }
};

// Matrices are row-major; `stride` is from one row to the next.
template <typename T>
struct Matrix {
  T* data;
  int64_t stride;
};

// c = a * b^T + beta * c: c is m x n, b is n x k.
template <typename T>
void multiply_nt(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c,
                 double beta, int threads) {
  gemm<T>({m, n, k, false, true, a.stride, b.stride, c.stride, 1, beta}, a.data, b.data, c.data,
          threads);
}

// c = a * b + beta * c: b is k x n.
template <typename T>
void multiply_nn(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c,
                 double beta, int threads) {
  gemm<T>({m, n, k, false, false, a.stride, b.stride, c.stride, 1, beta}, a.data, b.data, c.data,
          threads);
}

// c = a^T * b + beta * c: a is k x m.
template <typename T>
void multiply_tn(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, Matrix<T> c,
                 double beta, int threads) {
  gemm<T>({m, n, k, true, false, a.stride, b.stride, c.stride, 1, beta}, a.data, b.data, c.data,
          threads);
}

// b_ih + b_hh, or zeros when there is no bias.
template <typename T>
void add_biases(int64_t n, const T* b_ih, const T* b_hh, T* out);

// out[n] = sums over the rows of x.
template <typename T>
void sum_rows(int64_t rows, int64_t n, Matrix<const T> x, T* out, int threads);

// dx and dw_ih, from the gradient of the gates' sums at all times.
template <typename T>
void input_gradients(const Recurrence& r, int64_t gates, const T* grad, const T* x, const T* w_ih,
                     T* dx, T* dw_ih, int threads);

// dw_hh: each step multiplies the state that y holds one step before, the first one h0.
template <typename T>
void recurrent_weight_gradient(const Recurrence& r, int64_t gates, const T* grad, const T* h0,
                               const T* y, T* dw_hh, int threads);

// p + offset, or nullptr for an absent tensor.
template <typename T>
const T* row_of(const T* p, int64_t offset) {
  return p == nullptr ? nullptr : p + offset;
}

// Copies, or zeros when there is nothing to copy.
template <typename T>
void copy_or_zero(int64_t n, const T* from, T* to);

// Bytes of n numbers, rounded up so that the next array begins on a cache line.
template <typename T>
size_t array_bytes(int64_t n) {
  return (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
}

}  // namespace poptorch::kernels
