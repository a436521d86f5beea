#include "kernels/simd/vec/half.inl"
#include "kernels/simd/vec/lanes.inl"

// Doubles one by one.
template <>
struct Lanes<double> {
  static double get(const double* p, int64_t) { return *p; }
  static void put(double* p, double v, int64_t) { *p = v; }
};

template <typename T>
inline constexpr int64_t at_once = std::is_same_v<T, double> ? 1 : width;

// x * y + z, by one rule for all elements: where a tensor is cut changes no bit.
inline vf fused(float x, vf y, vf z) { return multiply_add(splat(x), y, z); }
inline double fused(double x, double y, double z) {
#if SIMD_WIDTH > 4
  return __builtin_fma(x, y, z);
#else
  return x * y + z;
#endif
}

inline vf root(vf v) { return sqrt(v); }
inline double root(double v) { return __builtin_sqrt(v); }
inline vf larger(vf a, vf b) { return maximum(a, b); }
inline double larger(double a, double b) { return a > b || a != a ? a : b; }

// update(i, count) for all n elements: count, which are handled at once, is a constant but
// for the last ones. Numbers that updates need are to be copies: a store could change others.
template <typename T, typename Update>
inline void each(int64_t n, const Update& update) {
  int64_t i = 0;
  for (; i + at_once<T> <= n; i += at_once<T>) {
    update(i, std::integral_constant<int64_t, at_once<T>>{});
  }
  if (i < n) update(i, n - i);
}

template <typename T>
inline void add_scaled(const T* acc, const T* grad, NumberOf<T> scale, T* out, int64_t n) {
  using L = Lanes<T>;
  each<T>(n, [=](int64_t i, auto count) {
    L::put(out + i, fused(scale, L::get(grad + i, count), L::get(acc + i, count)), count);
  });
}

template <typename T>
inline void sgd_step(const SgdArrays<T>& arrays, const SgdStep<NumberOf<T>>& step, int64_t n) {
  using L = Lanes<T>;
  each<T>(n, [a = arrays, s = step](int64_t i, auto count) {
    const auto param = L::get(a.param + i, count);
    auto d = s.sign * L::get(a.grad + i, count);
    const auto decay = MUTANT(sgd_decay_grows) ? -s.weight_decay : s.weight_decay;
    if (decay != 0) d = fused(decay, param, d);
    if (a.new_buffer != nullptr) {
      const auto buffer =
          s.is_first ? d : fused(s.momentum, L::get(a.buffer + i, count), s.undamped * d);
      L::put(a.new_buffer + i, buffer, count);
      d = s.nesterov ? fused(s.momentum, buffer, d) : buffer;
    }
    L::put(a.new_param + i, fused(-s.lr, d, param), count);
  });
}

template <typename T>
inline void adam_step(const AdamArrays<T>& arrays, const AdamStep<NumberOf<T>>& step, int64_t n) {
  using L = Lanes<T>;
  each<T>(n, [a = arrays, s = step](int64_t i, auto count) {
    const auto param = L::get(a.param + i, count);
    auto d = s.sign * L::get(a.grad + i, count);
    if (s.decay != 0) d = fused(s.decay, param, d);
    auto average = L::get(a.average + i, count);
    // As torch.lerp, from the nearer end: a share of 1 gives d, however large the average is.
    average = s.one_minus_beta1 < 0.5f ? fused(s.one_minus_beta1, d - average, average)
                                       : fused(s.one_minus_beta1 - 1, d - average, d);
    const auto square =
        fused(s.beta2, L::get(a.square + i, count), s.one_minus_beta2 * (d * d));
    L::put(a.new_average + i, average, count);
    L::put(a.new_square + i, square, count);
    auto second = square;
    if (a.new_max_square != nullptr) {
      second = larger(L::get(a.max_square + i, count), square);
      L::put(a.new_max_square + i, second, count);
    }
    const auto denominator = fused(s.root_scale, root(second), s.eps + decltype(second){});
    L::put(a.new_param + i, fused(-s.step_size, average / denominator, s.shrink * param), count);
  });
}

template <typename T>
inline constexpr UpdateTable<T> updates = {add_scaled<T>, sgd_step<T>, adam_step<T>};

inline constexpr OptimizerTable optimizer_functions = {updates<float>, updates<double>,
                                                       updates<F16>, updates<BF16>};
