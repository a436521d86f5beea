// The loops of reduction/loops.h. Needs kernels/simd/convert.h, included before.

// As many doubles as fit a register, and the floats that they are made from.
constexpr int wide = SIMD_WIDTH / 2;
typedef double vd __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef double vd_unaligned __attribute__((vector_size(4 * SIMD_WIDTH), aligned(8), may_alias));
typedef float vf_half __attribute__((vector_size(2 * SIMD_WIDTH), aligned(4), may_alias));

inline vd widen(vf_half v) {
#if SIMD_WIDTH == 16
  return _mm512_maskz_cvtps_pd(0xff, reinterpret_cast<__m256>(v));
#elif SIMD_WIDTH == 8
  return _mm256_cvtps_pd(reinterpret_cast<__m128>(v));
#else
  return __builtin_convertvector(v, vd);
#endif
}
inline vd load_wide(const float* p) { return widen(*reinterpret_cast<const vf_half*>(p)); }
typedef uint32_t vu_half __attribute__((vector_size(2 * SIMD_WIDTH)));

inline vd load_wide(const BF16* p) {
#if SIMD_WIDTH == 16
  const auto words = reinterpret_cast<vu_half>(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif SIMD_WIDTH == 8
  const auto words = reinterpret_cast<vu_half>(
      _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  const vu_half words = {p[0].bits, p[1].bits};
#endif
  return widen(reinterpret_cast<vf_half>(words << 16));
}
inline vd load_wide(const F16* p) {
#if SIMD_WIDTH == 16
  return widen(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif SIMD_WIDTH == 8
  return widen(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return widen(vf_half{f16_to_float(p[0].bits), f16_to_float(p[1].bits)});
#endif
}

template <typename E>
double wide_of(E x) {
  return number_of(x);
}

inline vd load(const double* p) { return *reinterpret_cast<const vd_unaligned*>(p); }
inline void store(double* p, vd v) { *reinterpret_cast<vd_unaligned*>(p) = v; }

inline double sum(vd v) {
  double total = 0;
  for (int i = 0; i < wide; ++i) total += v[i];
  return total;
}

struct Plain {
  vd operator()(vd x) const { return x; }
  double operator()(double x) const { return x; }
};

struct SquareAround {
  double shift;
  vd operator()(vd x) const { return (x - shift) * (x - shift); }
  double operator()(double x) const { return (x - shift) * (x - shift); }
};

template <typename E>
inline double reduce_mapped(const E* x, int64_t n, const auto& map) {
  vd a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * wide <= n; i += 4 * wide) {
    a += map(load_wide(x + i));
    b += map(load_wide(x + i + wide));
    c += map(load_wide(x + i + 2 * wide));
    d += map(load_wide(x + i + 3 * wide));
  }
  for (; i + wide <= n; i += wide) a += map(load_wide(x + i));
  double tail = 0;
  for (; i < n; ++i) tail += map(wide_of(x[i]));
  return sum((a + b) + (c + d)) + tail;
}

template <typename E>
inline double reduce_sum(const E* x, int64_t n) {
  return reduce_mapped(x, n, Plain{});
}

inline double reduce_squares(const float* x, int64_t n, double shift) {
  return reduce_mapped(x, n, SquareAround{shift});
}

typedef int64_t vl __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef float vf_wide __attribute__((vector_size(2 * SIMD_WIDTH)));

// Lane i of the result: the sum of lanes 0 to i.
inline vd running(vd v) {
  for (int step = 1; step < wide; step *= 2) {
    vl from;  // lane `wide`, of the zeros, for the first ones
    for (int i = 0; i < wide; ++i) from[i] = i < step ? wide : i - step;
    v += __builtin_shuffle(v, vd{}, from);
  }
  return v;
}

inline void reduce_running_sum(const float* x, float* out, int64_t n) {
  double before = 0;
  int64_t i = 0;
  for (; i + wide <= n; i += wide) {
    // What comes before is added last: only that addition waits for the vector before.
    const vd sums = running(load_wide(x + i));
    const vf_wide rounded = __builtin_convertvector(sums + before, vf_wide);
    *reinterpret_cast<vf_half*>(out + i) = rounded;
    before += sums[wide - 1];
  }
  for (; i < n; ++i) out[i] = static_cast<float>(before += x[i]);
}

template <typename E>
inline void reduce_sum_rows(double* acc, const E* x, int64_t row_stride, int64_t rows, int64_t n) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    const E* a = x + row * row_stride;
    const E *b = a + row_stride, *c = b + row_stride, *d = c + row_stride;
    int64_t i = 0;
    for (; i + wide <= n; i += wide) {
      const vd ab = load_wide(a + i) + load_wide(b + i), cd = load_wide(c + i) + load_wide(d + i);
      store(acc + i, load(acc + i) + (ab + cd));
    }
    for (; i < n; ++i) {
      acc[i] += (wide_of(a[i]) + wide_of(b[i])) + (wide_of(c[i]) + wide_of(d[i]));
    }
  }
  for (; row < rows; ++row) {
    const E* a = x + row * row_stride;
    int64_t i = 0;
    for (; i + wide <= n; i += wide) store(acc + i, load(acc + i) + load_wide(a + i));
    for (; i < n; ++i) acc[i] += wide_of(a[i]);
  }
}

inline void reduce_squares_rows(double* acc, const float* x, int64_t row_stride, int64_t rows,
                                int64_t n, const double* shift) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* a = x + row * row_stride;
    int64_t i = 0;
    for (; i + wide <= n; i += wide) {
      const vd d = load_wide(a + i) - load(shift + i);
      store(acc + i, load(acc + i) + d * d);
    }
    for (; i < n; ++i) acc[i] += (a[i] - shift[i]) * (a[i] - shift[i]);
  }
}

inline double reduce_exps(const float* x, int64_t n, float shift) {
  constexpr int64_t flush = 64 * width;  // lanes of f32 are emptied before they grow
  double total = 0;
  for (int64_t start = 0; start < n; start += flush) {
    const int64_t end = start + flush < n ? start + flush : n;
    vf a{};
    int64_t i = start;
    for (; i + width <= end; i += width) a += exp(load(x + i) - shift);
    if (i < end) {
      float rest[width] = {};
      store_part(rest, exp(load_part(x + i, end - i) - shift), end - i);
      a += load(rest);
    }
    total += sum(a);
  }
  return total;
}

inline void reduce_exps_rows(double* acc, const float* x, int64_t row_stride, int64_t rows,
                             int64_t n, const float* shift) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* a = x + row * row_stride;
    for (int64_t i = 0; i < n; i += width) {
      const int64_t count = n - i < width ? n - i : width;
      const bool whole = count == width;
      const vf in = whole ? load(a + i) : load_part(a + i, count);
      const vf around = whole ? load(shift + i) : load_part(shift + i, count);
      float values[width];
      store(values, exp(in - around));
      for (int64_t l = 0; l < count; ++l) acc[i + l] += values[l];
    }
  }
}

struct Larger {
  static vf pick(vf best, vf x) { return select((x > best) | (x != x), x, best); }
  static float pick(float best, float x) { return x > best || x != x ? x : best; }
};

struct Smaller {
  static vf pick(vf best, vf x) { return select((x < best) | (x != x), x, best); }
  static float pick(float best, float x) { return x < best || x != x ? x : best; }
};

template <typename Better>
inline float reduce_extreme(const float* x, int64_t n) {
  float best = x[0];
  int64_t i = 0;
  if (n >= width) {
    vf a = load(x), b = a, c = a, d = a;
    for (; i + 4 * width <= n; i += 4 * width) {
      a = Better::pick(a, load(x + i));
      b = Better::pick(b, load(x + i + width));
      c = Better::pick(c, load(x + i + 2 * width));
      d = Better::pick(d, load(x + i + 3 * width));
    }
    for (; i + width <= n; i += width) a = Better::pick(a, load(x + i));
    a = Better::pick(Better::pick(a, b), Better::pick(c, d));
    for (int l = 0; l < width; ++l) best = Better::pick(best, a[l]);
  }
  for (; i < n; ++i) best = Better::pick(best, x[i]);
  return best;
}

template <typename Better>
inline void reduce_extreme_rows(float* acc, const float* x, int64_t row_stride, int64_t rows,
                                int64_t n) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* a = x + row * row_stride;
    int64_t i = 0;
    for (; i + width <= n; i += width) store(acc + i, Better::pick(load(acc + i), load(a + i)));
    for (; i < n; ++i) acc[i] = Better::pick(acc[i], a[i]);
  }
}

inline constexpr ReduceLoops reduce_functions = {
    {reduce_sum<float>, reduce_sum_rows<float>},
    {reduce_sum<F16>, reduce_sum_rows<F16>},
    {reduce_sum<BF16>, reduce_sum_rows<BF16>},
    reduce_squares,
    reduce_exps,
    reduce_extreme<Larger>,
    reduce_extreme<Smaller>,
    reduce_running_sum,
    reduce_squares_rows,
    reduce_exps_rows,
    reduce_extreme_rows<Larger>,
    reduce_extreme_rows<Smaller>,
};
