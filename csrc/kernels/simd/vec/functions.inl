// Parts of the functions of unary.def and binary.def, for V a vector of floats or a double. The
// includer's namespace has V, the mask type M, k(double), select and the mathematical functions.

inline M both(M x, M y) { return x & y; }
inline M either(M x, M y) { return x | y; }
inline M differ(M x, M y) { return x ^ y; }

// sqrt(2/pi) (x + 0.044715 x^3). The tanh form's factor, 0.5 (1 + tanh(inner)), is computed as
// sigmoid(2 inner), which does not cancel where tanh is close to -1.
[[gnu::always_inline]] inline V gelu_inner(V x) {
  return k(0.7978845608028654) * (x + k(0.044715) * x * x * x);
}

[[gnu::always_inline]] inline V gelu_slope(V x) {
  const double peak = MUTANT(gelu_gradient_constant) ? 0.3998422804014327 : 0.3989422804014327;
  const V density = exp(k(-0.5) * x * x) * k(peak);  // 1 / sqrt(2 pi)
  return normal_cdf(x) + x * density;
}

[[gnu::always_inline]] inline V gelu_tanh_slope(V x) {
  const V e = exp(minimum(k(-2) * gelu_inner(x), k(80)));  // finite, so that e * s is 1 - s
  const V s = k(1) / (k(1) + e);
  const V inner_slope = k(0.7978845608028654) * (k(1) + k(3 * 0.044715) * x * x);
  return s * (k(1) + k(2) * x * (e * s) * inner_slope);
}

[[gnu::always_inline]] inline V silu_slope(V x) {
  const V s = sigmoid(x);
  return s * (k(1) + x * (k(1) - s));
}

inline V mish_slope(V x) {
  const V t = tanh(log1p(exp(x)));
  return t + x * sigmoid(x) * (k(1) - t * t);
}

inline V hardswish_slope(V x) {
  return select(x <= -3.0f, k(0), select(x < 3.0f, x / k(3) + k(0.5), k(1)));
}

// The remainder has the sign of the divisor.
inline V remainder(V x, V y) {
  const V r = fmod(x, y);
  return select(both(r != 0.0f, differ(y < 0.0f, r < 0.0f)), r + y, r);
}

// The largest whole number at most x / y, computed from the exact remainder; x / y where y is 0.
inline V floor_divide(V x, V y) {
  const V r = fmod(x, y);
  V q = (x - r) / y;
  q = select(both(r != 0.0f, differ(y < 0.0f, r < 0.0f)), q - k(1), q);
  const V whole = floor(q);
  const V rounded = select(q - whole > 0.5f, whole + k(1), whole);
  return select(y == 0.0f, x / y, select(q == 0.0f, copysign(k(0), x / y), rounded));
}
