// Element-wise movement of data: items are only bytes.
#include <cstring>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduction/types.h"

namespace poptorch::kernels {

namespace {

// Both values are loaded, whatever the condition: so the compiler uses vectors. The result may lie
// where an operand does.
template <typename T, typename X, typename Y>
void choose(const simd::InnerLoop& s, int64_t step, X x, Y y) {
  const auto* condition = static_cast<const uint8_t*>(s.in[0]);
  auto* out = static_cast<T*>(s.out);
#pragma GCC ivdep
  for (int64_t i = 0; i < s.n; ++i) {
    const T yes = x(i), no = y(i);
    out[i] = condition[i * step] != 0 ? yes : no;
  }
}

template <typename T>
void where(const simd::InnerLoop& s) {
  const auto* x = static_cast<const T*>(s.in[1]);
  const auto* y = static_cast<const T*>(s.in[2]);
  const int64_t dc = s.step[0], dx = s.step[1], dy = s.step[2];
  const auto values = [](const T* from) { return [from](int64_t i) { return from[i]; }; };
  const auto one = [](const T* from) { return [value = *from](int64_t) { return value; }; };
  if (dc == 1 && dx == 1 && dy == 1) {
    choose<T>(s, 1, values(x), values(y));
  } else if (dc == 1 && dx == 0 && dy == 1) {
    choose<T>(s, 1, one(x), values(y));
  } else if (dc == 1 && dx == 1 && dy == 0) {
    choose<T>(s, 1, values(x), one(y));
  } else {
    choose<T>(s, dc, [x, dx](int64_t i) { return x[i * dx]; },
              [y, dy](int64_t i) { return y[i * dy]; });
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
