// Weight updates on runs of elements. Outputs may equal inputs.
#pragma once

#include <cstdint>

#include "kernels/simd/convert.h"

namespace poptorch::simd {

// One step's numbers of type T, worked out in double from the hyper-parameters.
template <typename T>
struct SgdStep {
  T lr, momentum, weight_decay;
  T undamped;     // 1 - dampening
  T sign;         // -1 to maximize
  bool nesterov;
  bool is_first;  // the momentum buffer starts as the gradient
};

template <typename T>
struct AdamStep {
  T beta2, one_minus_beta1, one_minus_beta2, eps;
  T decay;       // weight decay that joins the gradient
  T shrink;      // factor of the parameter: 1 - lr * weight decay when decoupled, else 1
  T sign;        // -1 to maximize
  T step_size;   // lr / (1 - beta1^step)
  T root_scale;  // 1 / sqrt(1 - beta2^step)
};

// Pointers of one call; buffers that the op does not have are null.
template <typename T>
struct SgdArrays {
  const T *param, *grad, *buffer;
  T *new_param, *new_buffer;
};
template <typename T>
struct AdamArrays {
  const T *param, *grad, *average, *square, *max_square;
  T *new_param, *new_average, *new_square, *new_max_square;
};

// Of n elements.
template <typename T>
struct UpdateTable {
  using Number = NumberOf<T>;
  void (*accumulate)(const T* acc, const T* grad, Number scale, T* out, int64_t n);
  void (*sgd)(const SgdArrays<T>& arrays, const SgdStep<Number>& step, int64_t n);
  void (*adam)(const AdamArrays<T>& arrays, const AdamStep<Number>& step, int64_t n);
};
struct OptimizerTable {
  UpdateTable<float> f32;
  UpdateTable<double> f64;
  UpdateTable<F16> f16;
  UpdateTable<BF16> bf16;
};
const OptimizerTable& optimizer_table();

}  // namespace poptorch::simd
