// Functions of vectors, within about 2 units in the last place unless said otherwise; infinities,
// NaN and subnormals as the C library has them. Coefficients are minimax fits of the quotient that
// stands in the comment. Included by each_isa.h after vec.inl.
//
// The parts of frequent functions are inlined by force: left to itself the compiler calls exp, and
// a call saves every vector register.

constexpr float ln2_high = 0x1.62ep-1f;  // 12 bits: products with exponents are exact
constexpr float ln2_low = 0x1.0bfbe8p-15f;
constexpr float log2_e = 1.442695041f;

inline vf power_of_two(vi exponent) { return as_float((exponent + 127) << 23); }

// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2.
[[gnu::always_inline]] inline vf exp_tail(vf r) {
  vf p = 1.381314476e-3f * r + 8.369418792e-3f;
  p = p * r + 4.166845605e-2f;
  p = p * r + 1.666651517e-1f;
  return p * r + 4.999999404e-1f;
}

struct Reduced {
  vf rest;  // |rest| <= ln(2)/2
  vi exponent;
};

// x = exponent * ln(2) + rest.
[[gnu::always_inline]] inline Reduced reduce_exp(vf x) {
  constexpr float shift = 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number
  const vf n = (x * log2_e + shift) - shift;
  return {(x - n * ln2_high) - n * ln2_low, to_int(n)};
}

// Scaled in two steps: 2^128 is no float, and results may be subnormal.
[[gnu::always_inline]] inline vf scale_by(vf x, vi exponent) {
  const vi half = exponent >> 1;
  return x * power_of_two(half) * power_of_two(exponent - half);
}

// x kept between low and high; NaN stays.
[[gnu::always_inline]] inline vf within(vf x, float low, float high) {
#if SIMD_WIDTH == 16
  return _mm512_maskz_max_ps(0xffff, splat(low), _mm512_maskz_min_ps(0xffff, splat(high), x));
#elif SIMD_WIDTH == 8
  return _mm256_max_ps(splat(low), _mm256_min_ps(splat(high), x));
#else
  return _mm_max_ps(splat(low), _mm_min_ps(splat(high), x));
#endif
}

[[gnu::always_inline]] inline vf exp(vf x) {
  const vf in = within(x, -104.0f, 89.0f);
#if SIMD_WIDTH == 16
  const vf n = round(in * log2_e);
  const vf rest = (in - n * ln2_high) - n * ln2_low;
  return _mm512_maskz_scalef_ps(0xffff, rest * rest * exp_tail(rest) + rest + 1.0f, n);
#else
  const Reduced r = reduce_exp(in);
  return scale_by(r.rest * r.rest * exp_tail(r.rest) + r.rest + 1.0f, r.exponent);
#endif
}

// e^x - 1 for x in [-30, 88].
[[gnu::always_inline]] inline vf expm1_within(vf x) {
  const Reduced r = reduce_exp(x);
  const vf scale = power_of_two(r.exponent);
  const vf near_zero = r.rest * r.rest * exp_tail(r.rest) + r.rest;
  return scale * near_zero + (scale - 1.0f);
}

inline vf expm1(vf x) {
  const vf out = expm1_within(within(x, -30.0f, 88.0f));
  return select(x > 88.0f, exp(x), select(x == 0.0f, x, out));
}

inline vf exp2(vf x) {
  vf in = select(x > 129.0f, splat(129.0f), x);
  in = select(in < -151.0f, splat(-151.0f), in);
  const vf n = round(in);
  const vf r = (in - n) * 0.693147182f;
  return scale_by(r * r * exp_tail(r) + r + 1.0f, to_int(n));
}

struct LogParts {
  vf exponent;
  vf log;  // of the mantissa, which lies in [sqrt(1/2), sqrt(2)]
};

// x must be positive and finite.
inline LogParts log_parts(vf x) {
  const vi tiny = x < 1.17549435e-38f;
  const vf scaled = select(tiny, x * 8388608.0f, x);
  const vi shifted = as_int(scaled) - 0x3f3504f3;  // bits of sqrt(1/2)
  const vi exponent = (shifted >> 23) - select(tiny, splat(int32_t{23}), vi{});
  const vf f = as_float((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
  // log(1 + f) = 2 atanh(s) = f - s (f - R), R = (2 atanh(s) - 2 s) / s
  const vf s = f / (f + 2.0f);
  const vf z = s * s;
  vf r = 2.359633148e-1f * z + 2.853660285e-1f;
  r = r * z + 4.000034630e-1f;
  r = r * z + 6.666666269e-1f;
  return {to_float(exponent), f - s * (f - r * z)};
}

// What log and its kin give where x is 0, negative, infinite or NaN.
inline vf log_edges(vf x, vf log) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const vf out = select(x == infinity, x, select(x == 0.0f, splat(-infinity), log));
  return select(x >= 0.0f, out, splat(std::numeric_limits<float>::quiet_NaN()));
}

inline vf log(vf x) {
  const LogParts p = log_parts(x);
  return log_edges(x, p.exponent * ln2_high + (p.exponent * ln2_low + p.log));
}
inline vf log2(vf x) {
  const LogParts p = log_parts(x);
  return log_edges(x, p.log * log2_e + p.exponent);
}
inline vf log10(vf x) {
  const LogParts p = log_parts(x);
  const vf low = p.log * 4.342944819e-1f + p.exponent * 4.605039e-6f;
  return log_edges(x, low + p.exponent * 0x1.344p-2f);
}

// log(1 + x): the rounding of 1 + x is made good to first order.
inline vf log1p(vf x) {
  const vf u = x + 1.0f;
  const vf lost = select(u == std::numeric_limits<float>::infinity(), vf{}, (x - (u - 1.0f)) / u);
  return select(u == 1.0f, x, select(x == -1.0f, log(u), log(u) + lost));
}

[[gnu::always_inline]] inline vf sigmoid(vf x) { return 1.0f / (1.0f + exp(-x)); }

// The largest error is below 1.5 units in the last place.
[[gnu::always_inline]] inline vf erf(vf x) {
  const vf a = abs(x);
  const vf z = x * x;
  // (erf(x) - x) / x for |x| <= 1
  vf small = 7.853860734e-5f * z + -8.010193706e-4f;
  small = small * z + 5.188327748e-3f;
  small = small * z + -2.685381286e-2f;
  small = small * z + 1.128358543e-1f;
  small = small * z + -3.761262596e-1f;
  small = small * z + 1.283791661e-1f;
  // -log(1 - erf(t)) / t for 1 <= t <= 4; from 4 on erf rounds to 1
  const vf t = select(a > 4.0f, splat(4.0f), a);
  vf large = 1.233935200e-5f * t + -3.339593241e-4f;
  large = large * t + 3.688104684e-3f;
  large = large * t + -2.385926433e-2f;
  large = large * t + 1.063505560e-1f;
  large = large * t + 6.350820065e-1f;
  large = large * t + 1.128665686f;
  const vf far = copysign(1.0f - exp(-large * t), x);
  return select(a < 1.0f, small * x + x, select(x != x, x, far));
}

// sin(x + quarters * pi/2).
inline vf sin_shifted(vf x, int32_t quarters) {
  const vf n = round(x * 0.636619772f);
  const vf r = ((x - n * 0x1.92p0f) - n * 0x1.fb4p-12f) - n * 0x1.4442d2p-24f;
  const vf z = r * r;
  vf s = 2.717366669e-6f * z + -1.983923285e-4f;
  s = s * z + 8.333329111e-3f;
  s = s * z + -1.666666716e-1f;
  const vf sine = s * z * r + r;
  vf c = -2.720330485e-7f * z + 2.479943578e-5f;
  c = c * z + -1.388888340e-3f;
  c = c * z + 4.166666791e-2f;
  const vf cosine = c * z * z - 0.5f * z + 1.0f;
  const vi q = to_int(n) + quarters;
  const vf value = select((q & 1) != 0, cosine, sine);
  return as_float(as_int(value) ^ ((q & 2) << 30));
}

// Up to here n times the parts of pi/2 are exact; larger angles go to the C library.
constexpr float largest_angle = 8192.0f;

inline vf sin(vf x) {
  const vi small = abs(x) < largest_angle;
  const vf sine = select(x == 0.0f, x, sin_shifted(x, 0));
  return any(~small) ? select(small, sine, lanes<::sinf>(x)) : sine;
}
inline vf cos(vf x) {
  const vi small = abs(x) < largest_angle;
  const vf cosine = sin_shifted(x, 1);
  return any(~small) ? select(small, cosine, lanes<::cosf>(x)) : cosine;
}

inline vf tan(vf x) { return lanes<::tanf>(x); }
inline vf asin(vf x) { return lanes<::asinf>(x); }
inline vf acos(vf x) { return lanes<::acosf>(x); }
inline vf atan(vf x) { return lanes<::atanf>(x); }
inline vf sinh(vf x) { return lanes<::sinhf>(x); }
inline vf cosh(vf x) { return lanes<::coshf>(x); }
inline vf asinh(vf x) { return lanes<::asinhf>(x); }
inline vf acosh(vf x) { return lanes<::acoshf>(x); }
inline vf atanh(vf x) { return lanes<::atanhf>(x); }
inline vf erfc(vf x) { return lanes<::erfcf>(x); }
inline vf pow(vf x, vf y) { return lanes<::powf>(x, y); }

// Exact, as fmodf. Below 2^23, the whole part of the rounded quotient is right or one too large:
// what is left of x, which is computed without an error, then has the other sign.
inline vf fmod(vf x, vf y) {
#if SIMD_WIDTH == 4
  return lanes<::fmodf>(x, y);
#else
  const vf quotient = x / y, size = abs(y);
  const vi fits = (abs(quotient) < 0x1p23f) & (size >= 0x1p-100f) & (size <= 0x1p100f);
  const vf rest = multiply_add(-trunc(quotient), y, x);
  const vi is_over = (as_int(rest) ^ as_int(x)) < 0;
  const vf exact = copysign(select(is_over & (rest != 0.0f), size - abs(rest), abs(rest)), x);
  return any(~fits) ? select(fits, exact, lanes<::fmodf>(x, y)) : exact;
#endif
}
inline vf atan2(vf x, vf y) { return lanes<::atan2f>(x, y); }
