// Parts of the functions of unary.def and binary.def, for V a vector of floats or a double. The
// includer's namespace has V, the mask type M, k(double), select and the mathematical functions.

inline M both(M x, M y) { return x & y; }
inline M either(M x, M y) { return x | y; }
inline M differ(M x, M y) { return x ^ y; }

// sqrt(2/pi) (x + 0.044715 x^3)
inline V gelu_inner(V x) { return k(0.7978845608028654) * (x + k(0.044715) * x * x * x); }

inline V gelu_slope(V x) {
  const V cdf = k(0.5) * (k(1) + erf(x * k(M_SQRT1_2)));
  const V density = exp(k(-0.5) * x * x) * k(0.3989422804014327);  // 1 / sqrt(2 pi)
  return cdf + x * density;
}

inline V gelu_tanh_slope(V x) {
  const V t = tanh(gelu_inner(x));
  const V inner_slope = k(0.7978845608028654) * (k(1) + k(3 * 0.044715) * x * x);
  return k(0.5) * (k(1) + t) + k(0.5) * x * (k(1) - t * t) * inner_slope;
}

inline V silu_slope(V x) {
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
