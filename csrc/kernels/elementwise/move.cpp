// Element-wise movement of data: items are only bytes.
#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduction/types.h"

namespace poptorch::kernels {

namespace {

template <typename T>
void where(const simd::InnerLoop& s) {
  const auto* condition = static_cast<const uint8_t*>(s.in[0]);
  const auto* x = static_cast<const T*>(s.in[1]);
  const auto* y = static_cast<const T*>(s.in[2]);
  auto* out = static_cast<T*>(s.out);
  const int64_t dc = s.step[0], dx = s.step[1], dy = s.step[2];
  if (dc == 1 && dx == 1 && dy == 1) {
    for (int64_t i = 0; i < s.n; ++i) out[i] = condition[i] != 0 ? x[i] : y[i];
  } else if (dc == 1 && dx == 0 && dy == 1) {
    const T value = *x;
    for (int64_t i = 0; i < s.n; ++i) out[i] = condition[i] != 0 ? value : y[i];
  } else {
    for (int64_t i = 0; i < s.n; ++i) out[i] = condition[i * dc] != 0 ? x[i * dx] : y[i * dy];
  }
}

template <typename T>
void copy(const simd::InnerLoop& s) {
  const auto* x = static_cast<const T*>(s.in[0]);
  auto* out = static_cast<T*>(s.out);
  if (s.step[0] == 1) {
    std::memcpy(out, x, static_cast<size_t>(s.n) * sizeof(T));
    return;
  }
  const int64_t step = s.step[0];
  for (int64_t i = 0; i < s.n; ++i) out[i] = x[i * step];
}

}  // namespace

simd::InnerLoopFn where_loop(int64_t item_bytes) {
  return with_item_type(item_bytes, []<typename T>(T) { return &where<T>; });
}

simd::InnerLoopFn copy_loop(int64_t item_bytes) {
  return with_item_type(item_bytes, []<typename T>(T) { return &copy<T>; });
}

}  // namespace poptorch::kernels
