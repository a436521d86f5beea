// Loops over rows of tensors: softmax, norms, losses, attention. One source for f32 (compiled for
// each instruction set) and f64. A row is n entries side by side; the forms with `Columns` work on
// n entries that lie `stride` apart, for `columns` neighbours at once.
#pragma once

#include <cstdint>

namespace poptorch::kernels {

struct Columns {
  int64_t n, stride, columns;
};
struct Moments {
  double count = 0, mean = 0, squares = 0;  // squares: sum of (x - mean)^2

  void add(const Moments& other) {
    const double all = count + other.count, apart = other.mean - mean;
    squares += other.squares + apart * apart * count * other.count / all;
    const bool is_finite = apart - apart == 0;  // an infinite mean stays one
    mean = is_finite ? mean + apart * other.count / all : other.mean + (count > 0 ? mean : 0);
    count = all;
  }
};

// Sums of g and of g * (x - mean).
struct GradSums {
  double plain = 0, times_x = 0;
};

// (x - mean) * scale + offset
template <typename T>
struct Affine {
  T mean, scale, offset;
};

// of_grad * (g - grad_mean) + of_x * (x - mean) + offset. Loops that take no `grad_mean` have 0.
template <typename T>
struct GradAffine {
  T mean, of_grad, of_x, offset, grad_mean = 0;
};

template <typename T>
struct SoftmaxScale {
  T largest, log_sum, scale;
};

template <typename T>
struct LayerNormRow {
  const T *x, *weight, *bias;  // weight, bias: may be null
  T* y;
  double eps;
};

template <typename T>
struct LayerNormGrad {
  const T *g, *x, *weight;
  T mean, rstd;
  T *dx, *dweight, *dbias;  // null: not wanted; dweight and dbias are added to
};

template <typename T>
struct LossRow {
  const T *x, *target, *weight, *pos_weight;  // weights: may be null
  const T* grad;  // of each element; null: `scale` is all
  T* out;
  T parameter, scale;
};

template <typename T>
struct LossLoops {
  double (*sum)(const LossRow<T>&, int64_t n);
  void (*each)(const LossRow<T>&, int64_t n);
  void (*backward)(const LossRow<T>&, int64_t n);
};

// One row of attention scores.
template <typename T>
struct ScoreRow {
  T *scores, *grads;
  const T* added;          // a mask to add, or null
  const uint8_t* allowed;  // 0: takes no part; or null
  const T* keep;           // factors of dropout, or null
};

template <typename T>
struct Rows {
  void (*softmax)(const T* x, T* y, int64_t n, bool safe);  // safe: a row of -inf gives 0
  void (*log_softmax)(const T* x, T* y, int64_t n);
  void (*softmax_backward)(const T* g, const T* y, T* dx, int64_t n);
  void (*log_softmax_backward)(const T* g, const T* y, T* dx, int64_t n);
  void (*softmax_columns)(const T* x, T* y, Columns, bool safe);
  void (*log_softmax_columns)(const T* x, T* y, Columns);
  void (*softmax_backward_columns)(const T* g, const T* y, T* dx, Columns);
  void (*log_softmax_backward_columns)(const T* g, const T* y, T* dx, Columns);
  T (*log_sum)(const T* x, int64_t n, T* largest);
  void (*scaled_softmax)(const T* x, T* dx, int64_t n, const SoftmaxScale<T>&);

  Moments (*moments)(const T* x, int64_t n);
  void (*affine)(const T* x, T* y, int64_t n, Affine<T>);
  GradSums (*grad_sums)(const T* g, const T* x, int64_t n, T mean);
  void (*grad_affine)(const T* g, const T* x, T* dx, int64_t n, const GradAffine<T>&);
  void (*layer_norm)(const LayerNormRow<T>&, int64_t n, T* mean, T* rstd);
  void (*layer_norm_backward)(const LayerNormGrad<T>&, int64_t n);

  LossLoops<T> mse, smooth_l1, huber, cross_entropy;
  void (*logits_loss)(const LossRow<T>&, int64_t n);
  double (*sum)(const T* x, int64_t n);

  T (*attention_softmax)(const ScoreRow<T>&, int64_t n);
  void (*attention_gradient)(const ScoreRow<T>&, int64_t n, T logsumexp);
};

// The loops for this CPU. T: float, double.
template <typename T>
const Rows<T>& rows();

}  // namespace poptorch::kernels
