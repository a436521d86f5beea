// Loops of batch norm over images of E: float, double, or 16-bit floats, which are read and written
// where they lie and computed in f32. They go over one channel's entries that lie side by side, or,
// as `Columns`, over rows that hold an entry of each channel.
#pragma once

#include "kernels/rows/rows.h"
#include "kernels/simd/convert.h"

namespace poptorch::kernels {

// The most columns that the loops take at once: they keep a sum for each.
constexpr int64_t most_columns = 256;

// The factors of each column.
template <typename T>
struct AffineColumns {
  const T *mean, *scale, *offset;
};
template <typename T>
struct GradAffineColumns {
  const T *mean, *of_grad, *of_x, *offset, *grad_mean;
};

// y = relu(affine(x) + residual)
template <typename E>
struct BatchNormRows {
  const E *x, *residual;  // residual: may be null
  E* y;
  bool relu;
};
template <typename E>
struct BatchNormGradRows {
  const E *g, *x, *out;  // out, the y behind a relu: may be null
  E *dx, *masked;        // masked: gets the gradient behind the relu, or null
  bool only_scales;      // dx is of_grad * g: the statistics are given, no function of x
};

// From the entry `at` of the arrays on.
template <typename E>
struct BatchNormLoops {
  using T = simd::NumberOf<E>;
  Moments (*moments)(const E* x, int64_t n);
  void (*moments_columns)(const E* x, Columns, Moments* out);
  void (*affine)(const BatchNormRows<E>&, int64_t at, int64_t n, Affine<T>);
  void (*affine_columns)(const BatchNormRows<E>&, int64_t at, Columns, const AffineColumns<T>&);
  GradSums (*grad_sums)(const BatchNormGradRows<E>&, int64_t at, int64_t n, T mean);
  void (*grad_sums_columns)(const BatchNormGradRows<E>&, int64_t at, Columns, const T* mean,
                            GradSums* out);
  void (*grad_affine)(const BatchNormGradRows<E>&, int64_t at, int64_t n, const GradAffine<T>&);
  void (*grad_affine_columns)(const BatchNormGradRows<E>&, int64_t at, Columns,
                              const GradAffineColumns<T>&);
};

// The loops for this CPU. E: float, double, simd::F16, simd::BF16.
template <typename E>
const BatchNormLoops<E>& batch_norm_loops();

}  // namespace poptorch::kernels
