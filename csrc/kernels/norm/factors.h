// By what normalized numbers are scaled and shifted.
#pragma once

#include <cmath>

#include "kernels/rows/rows.h"

namespace poptorch::kernels {

// (x - mean) * scale + offset. By an infinite scale all numbers become infinite or NaN: which of
// the two, is as in PyTorch, which computes x * scale + (offset - mean * scale).
template <typename T>
Affine<T> factors_of(T mean, T scale, T offset) {
  if (!std::isinf(scale)) return {mean, scale, offset};
  return {T{0}, scale, offset - mean * scale};
}

}  // namespace poptorch::kernels
