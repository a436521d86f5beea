// Inner loops over functions of floats: Op::of(x, y, params) on vectors. Included after vec.inl;
// needs support/cpu/half.h, included before.
#include "kernels/simd/vec/half.inl"

using V = vf;
using M = vi;
inline vf k(double constant) { return splat(static_cast<float>(constant)); }

// Where element i of operand `which` starts: the operand itself when its step is 1, else a copy of
// `count` elements in `block`.
inline const float* contiguous(const InnerLoop& s, int which, int64_t i, int64_t count,
                               float* block) {
  const float* from = static_cast<const float*>(s.in[which]) + i * s.step[which];
  if (s.step[which] == 1) return from;
  for (int64_t j = 0; j < count; ++j) block[j] = from[j * s.step[which]];
  return block;
}

inline void put(float* out, vf v) { store(out, v); }
inline void put(uint8_t* out, vi mask) { store_bools(out, mask); }
inline void put_part(float* out, vf v, int64_t n) { store_part(out, v, n); }
inline void put_part(uint8_t* out, vi mask, int64_t n) {
  uint8_t bools[width];
  store_bools(bools, mask);
  std::memcpy(out, bools, static_cast<size_t>(n));
}

// Op, its results rounded.
template <typename Op, vf (*round_one)(vf)>
struct Rounded {
  template <typename... Args>
  static vf of(Args... args) {
    return round_one(Op::of(args...));
  }
};

struct Same {
  static vf of(vf x, const double*) { return x; }
};

template <typename Op, typename Out>
inline void map_unary(const float* x, Out* out, int64_t n, const double* params) {
  int64_t i = 0;
  for (; i + width <= n; i += width) put(out + i, Op::of(load(x + i), params));
  if (i < n) put_part(out + i, Op::of(load_part(x + i, n - i), params), n - i);
}

template <typename Op, typename Out>
inline void unary_loop(const InnerLoop& s) {
  auto* out = static_cast<Out*>(s.out);
  float block[loop_block];
  if (s.step[0] == 1) return map_unary<Op>(static_cast<const float*>(s.in[0]), out, s.n, s.params);
  for (int64_t i = 0; i < s.n; i += loop_block) {
    const int64_t count = std::min(loop_block, s.n - i);
    map_unary<Op>(contiguous(s, 0, i, count, block), out + i, count, s.params);
  }
}

template <typename Op, typename Out>
inline void map_binary(const float* x, const float* y, Out* out, int64_t n, const double* params) {
  int64_t i = 0;
  for (; i + width <= n; i += width) put(out + i, Op::of(load(x + i), load(y + i), params));
  if (i == n) return;
  const int64_t rest = n - i;
  put_part(out + i, Op::of(load_part(x + i, rest), load_part(y + i, rest), params), rest);
}

template <typename Op, typename Out>
inline void map_left(const float* x, vf y, Out* out, int64_t n, const double* params) {
  int64_t i = 0;
  for (; i + width <= n; i += width) put(out + i, Op::of(load(x + i), y, params));
  if (i < n) put_part(out + i, Op::of(load_part(x + i, n - i), y, params), n - i);
}

template <typename Op, typename Out>
inline void map_right(vf x, const float* y, Out* out, int64_t n, const double* params) {
  int64_t i = 0;
  for (; i + width <= n; i += width) put(out + i, Op::of(x, load(y + i), params));
  if (i < n) put_part(out + i, Op::of(x, load_part(y + i, n - i), params), n - i);
}

template <typename Op, typename Out>
inline void binary_loop(const InnerLoop& s) {
  auto* out = static_cast<Out*>(s.out);
  const auto* x = static_cast<const float*>(s.in[0]);
  const auto* y = static_cast<const float*>(s.in[1]);
  if (s.step[0] == 1 && s.step[1] == 1) return map_binary<Op>(x, y, out, s.n, s.params);
  if (s.step[0] == 1 && s.step[1] == 0) return map_left<Op>(x, splat(*y), out, s.n, s.params);
  if (s.step[0] == 0 && s.step[1] == 1) return map_right<Op>(splat(*x), y, out, s.n, s.params);
  float left[loop_block], right[loop_block];
  for (int64_t i = 0; i < s.n; i += loop_block) {
    const int64_t count = std::min(loop_block, s.n - i);
    map_binary<Op>(contiguous(s, 0, i, count, left), contiguous(s, 1, i, count, right), out + i,
                   count, s.params);
  }
}

// Rounds what a loop has written, block by block while it lies in the cache.
template <InnerLoopFn loop>
inline void round_after(const InnerLoop& s) {
  InnerLoop part = s;
  for (int64_t i = 0; i < s.n; i += loop_block) {
    float* const out = static_cast<float*>(s.out) + i;
    part.out = out;
    part.n = std::min(loop_block, s.n - i);
    for (int which = 0; which < 2; ++which) {
      part.in[which] = static_cast<const float*>(s.in[which]) + i * s.step[which];
    }
    loop(part);
    s.rounding == Rounding::f16 ? map_unary<Rounded<Same, round_f16>>(out, out, part.n, nullptr)
                                : map_unary<Rounded<Same, round_bf16>>(out, out, part.n, nullptr);
  }
}

// Loops for each rounding are compiled for cheaper functions only: for others, a separate pass that
// rounds costs little in comparison.
constexpr int rounded_after_picoseconds = 200;

template <typename Op, int picoseconds>
inline void rounding_unary_loop(const InnerLoop& s) {
  if (s.rounding == Rounding::none) return unary_loop<Op, float>(s);
  if constexpr (picoseconds >= rounded_after_picoseconds) {
    round_after<unary_loop<Op, float>>(s);
  } else if (s.rounding == Rounding::f16) {
    unary_loop<Rounded<Op, round_f16>, float>(s);
  } else {
    unary_loop<Rounded<Op, round_bf16>, float>(s);
  }
}

template <typename Op, int picoseconds>
inline void rounding_binary_loop(const InnerLoop& s) {
  if (s.rounding == Rounding::none) return binary_loop<Op, float>(s);
  if constexpr (picoseconds >= rounded_after_picoseconds) {
    round_after<binary_loop<Op, float>>(s);
  } else if (s.rounding == Rounding::f16) {
    binary_loop<Rounded<Op, round_f16>, float>(s);
  } else {
    binary_loop<Rounded<Op, round_bf16>, float>(s);
  }
}
