#include "kernels/recurrent/recurrent.h"

#include <cstring>

namespace poptorch::kernels {

namespace {

// Rows of the input that are multiplied at once: enough for a GEMM, few enough to stay in a cache.
constexpr int64_t input_rows = 128;

int64_t steps_at_once(const Recurrence& r) {
  int64_t steps = std::clamp<int64_t>(input_rows / std::max<int64_t>(1, r.batch), 1, r.time);
  while (r.time % steps != 0) --steps;
  return steps;
}

}  // namespace

Recurrence::Recurrence(const ops::Call& call, size_t first)
    : time(call.in(first).sizes[0]),
      batch(call.in(first).sizes[1]),
      input(call.in(first).sizes[2]),
      hidden(call.in(first + 1).sizes[1]),
      reverse(call.attrs().get_bool(ir::attr::reverse)) {}

template <typename T>
void add_biases(int64_t n, const T* b_ih, const T* b_hh, T* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = b_ih == nullptr ? T{0} : b_ih[i] + b_hh[i];
}

template <typename T>
void sum_rows(int64_t rows, int64_t n, int64_t stride, const T* x, T* out, int threads) {
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
          const T* line = x + i * stride + column;
          for (int64_t j = 0; j < columns; ++j) part[j] += line[j];
        }
        for (int64_t j = 0; j < columns; ++j) total[j] += part[j];
      }
      for (int64_t j = 0; j < columns; ++j) out[column + j] = static_cast<T>(total[j]);
    }
  });
}

template <typename T>
ForwardSteps<T>::ForwardSteps(const Recurrence& r, int64_t gates)
    : r_(r),
      steps_(steps_at_once(r)),
      state_(Side::forward, r.batch, r.hidden, r.hidden, gates, r.batch),
      input_(Side::forward, steps_ * r.batch, r.input, r.hidden, gates, r.batch) {}

template <typename T>
void BackwardSteps<T>::input_gradients(const T* grad, int64_t columns, double beta,
                                       const Inputs& inputs, int threads) const {
  const int64_t rows = r_.rows(), n = columns, width = r_.input;
  if (inputs.dx != nullptr) {
    gemm<T>({rows, width, n, false, false, stride_, width, width, 1, beta}, grad, inputs.w_ih,
            inputs.dx, threads);
  }
  gemm<T>({n, width, rows, true, false, stride_, width, width}, grad, inputs.x, inputs.dw_ih,
          threads);
}

template <typename T>
void BackwardSteps<T>::weight_gradient(const T* grad, const T* h0, const T* y, T* dw_hh,
                                       int threads) const {
  const int64_t n = width_, h = r_.hidden;
  gemm<T>({n, h, r_.batch, true, false, stride_, h, h}, at_step(grad, 0), h0, dw_hh, threads);
  if (r_.time < 2) return;
  const T* later = grad + (r_.reverse ? 0 : r_.batch * stride_);
  const T* before = y + (r_.reverse ? r_.state() : 0);
  gemm<T>({n, h, r_.rows() - r_.batch, true, false, stride_, h, h, 1, 1}, later, before, dw_hh,
          threads);
}

template <typename T>
void copy_or_zero(int64_t n, const T* from, T* to) {
  if (from == nullptr) {
    std::memset(to, 0, static_cast<size_t>(n) * sizeof(T));
  } else if (n > 0) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  }
}

#define INSTANTIATE(T)                                                      \
  template void add_biases<T>(int64_t, const T*, const T*, T*);             \
  template void sum_rows<T>(int64_t, int64_t, int64_t, const T*, T*, int);  \
  template void copy_or_zero<T>(int64_t, const T*, T*);                     \
  template class ForwardSteps<T>;                                           \
  template class BackwardSteps<T>;
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace poptorch::kernels
