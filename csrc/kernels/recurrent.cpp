#include "kernels/recurrent.h"

#include <algorithm>
#include <cstring>

#include "support/parallel.h"

namespace poptorch::kernels {

Recurrence::Recurrence(const ops::Call& call, size_t first)
    : time(call.in(first).sizes[0]),
      batch(call.in(first).sizes[1]),
      input(call.in(first).sizes[2]),
      hidden(call.in(first + 1).sizes[1]),
      reverse(call.attrs().get_bool("reverse")) {}

template <typename T>
void add_biases(int64_t n, const T* b_ih, const T* b_hh, T* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = b_ih == nullptr ? T{0} : b_ih[i] + b_hh[i];
}

template <typename T>
void sum_rows(int64_t rows, int64_t n, Matrix<const T> x, T* out, int threads) {
  constexpr int64_t width = 64, height = 32;
  const int64_t grain = width * std::max<int64_t>(1, 16384 / (rows * width + 1));
  parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; column += width) {
      const int64_t columns = std::min(width, end - column);
      double total[width] = {};
      for (int64_t row = 0; row < rows; row += height) {
        T part[width] = {};
        const int64_t last = std::min(rows, row + height);
        for (int64_t i = row; i < last; ++i) {
          const T* line = x.data + i * x.stride + column;
          for (int64_t j = 0; j < columns; ++j) part[j] += line[j];
        }
        for (int64_t j = 0; j < columns; ++j) total[j] += part[j];
      }
      for (int64_t j = 0; j < columns; ++j) out[column + j] = static_cast<T>(total[j]);
    }
  });
}

template <typename T>
void input_gradients(const Recurrence& r, int64_t gates, const T* grad, const T* x, const T* w_ih,
                     T* dx, T* dw_ih, int threads) {
  const int64_t n = gates * r.hidden;
  multiply_nn<T>(r.rows(), r.input, n, {grad, n}, {w_ih, r.input}, {dx, r.input}, 0, threads);
  multiply_tn<T>(n, r.input, r.rows(), {grad, n}, {x, r.input}, {dw_ih, r.input}, 0, threads);
}

template <typename T>
void recurrent_weight_gradient(const Recurrence& r, int64_t gates, const T* grad, const T* h0,
                               const T* y, T* dw_hh, int threads) {
  const int64_t n = gates * r.hidden, h = r.hidden;
  const T* first = grad + r.at(0) * r.batch * n;
  multiply_tn<T>(n, h, r.batch, {first, n}, {h0, h}, {dw_hh, h}, 0, threads);
  if (r.time < 2) return;
  const T* later = grad + (r.reverse ? 0 : r.batch * n);
  const T* before = y + (r.reverse ? r.state() : 0);
  multiply_tn<T>(n, h, r.rows() - r.batch, {later, n}, {before, h}, {dw_hh, h}, 1, threads);
}

template <typename T>
void copy_or_zero(int64_t n, const T* from, T* to) {
  if (from == nullptr) {
    std::memset(to, 0, static_cast<size_t>(n) * sizeof(T));
  } else if (n > 0) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  }
}

#define INSTANTIATE(T)                                                                            \
  template void add_biases<T>(int64_t, const T*, const T*, T*);                                   \
  template void sum_rows<T>(int64_t, int64_t, Matrix<const T>, T*, int);                          \
  template void input_gradients<T>(const Recurrence&, int64_t, const T*, const T*, const T*, T*,  \
                                   T*, int);                                                      \
  template void recurrent_weight_gradient<T>(const Recurrence&, int64_t, const T*, const T*,      \
                                             const T*, T*, int);                                  \
  template void copy_or_zero<T>(int64_t, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace poptorch::kernels
