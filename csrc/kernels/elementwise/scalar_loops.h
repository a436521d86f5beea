// Inner loops over functions of single elements: Op::of(x, y, params).
#pragma once

#include "kernels/simd/inner_loop.h"

namespace poptorch::kernels {

template <typename Op, typename T, typename Out>
void unary_loop(const simd::InnerLoop& s) {
  const auto* x = static_cast<const T*>(s.in[0]);
  auto* out = static_cast<Out*>(s.out);
  const int64_t step = s.step[0];
  for (int64_t i = 0; i < s.n; ++i) out[i] = static_cast<Out>(Op::of(x[i * step], s.params));
}

template <typename Op, typename T, typename Out>
void binary_loop(const simd::InnerLoop& s) {
  const auto* x = static_cast<const T*>(s.in[0]);
  const auto* y = static_cast<const T*>(s.in[1]);
  auto* out = static_cast<Out*>(s.out);
  const int64_t dx = s.step[0], dy = s.step[1];
  if (dx == 1 && dy == 1) {
    for (int64_t i = 0; i < s.n; ++i) out[i] = static_cast<Out>(Op::of(x[i], y[i], s.params));
    return;
  }
  for (int64_t i = 0; i < s.n; ++i) {
    out[i] = static_cast<Out>(Op::of(x[i * dx], y[i * dy], s.params));
  }
}

}  // namespace poptorch::kernels
