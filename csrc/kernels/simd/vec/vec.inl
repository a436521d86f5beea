// Vectors of SIMD_WIDTH floats and 32-bit integers. Included by each_isa.h inside the namespace of
// an instruction set. Masks are vectors of -1 (true) and 0.

constexpr int width = SIMD_WIDTH;

typedef float vf __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef int32_t vi __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef uint32_t vu __attribute__((vector_size(4 * SIMD_WIDTH)));
typedef int8_t vbytes __attribute__((vector_size(SIMD_WIDTH)));
typedef float vf_unaligned __attribute__((vector_size(4 * SIMD_WIDTH), aligned(4), may_alias));
typedef int32_t vi_unaligned __attribute__((vector_size(4 * SIMD_WIDTH), aligned(4), may_alias));
typedef int8_t vbytes_unaligned __attribute__((vector_size(SIMD_WIDTH), aligned(1), may_alias));

inline vf load(const float* p) { return *reinterpret_cast<const vf_unaligned*>(p); }
inline void store(float* p, vf v) { *reinterpret_cast<vf_unaligned*>(p) = v; }
inline vi load(const int32_t* p) { return *reinterpret_cast<const vi_unaligned*>(p); }
inline void store(int32_t* p, vi v) { *reinterpret_cast<vi_unaligned*>(p) = v; }

// Every lane x. (x - 0 and not x + 0: that would lose the sign of -0.)
inline vf splat(float x) { return x - vf{}; }
inline vi splat(int32_t x) { return x - vi{}; }

inline vi as_int(vf v) { return reinterpret_cast<vi>(v); }
inline vf as_float(vi v) { return reinterpret_cast<vf>(v); }
inline vi to_int(vf v) { return __builtin_convertvector(v, vi); }  // towards zero
inline vf to_float(vi v) { return __builtin_convertvector(v, vf); }

inline vf select(vi mask, vf yes, vf no) { return mask ? yes : no; }
inline vi select(vi mask, vi yes, vi no) { return mask ? yes : no; }

// True in the first n lanes.
inline vi first_lanes(int64_t n) {
#if SIMD_WIDTH == 16
  const vi index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif SIMD_WIDTH == 8
  const vi index = {0, 1, 2, 3, 4, 5, 6, 7};
#else
  const vi index = {0, 1, 2, 3};
#endif
  return index < splat(static_cast<int32_t>(n));
}

// The first n lanes (n < width), others 0. Nothing past them is touched.
inline vf load_part(const float* p, int64_t n) {
#if SIMD_WIDTH == 16
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#elif SIMD_WIDTH == 8
  return _mm256_maskload_ps(p, reinterpret_cast<__m256i>(first_lanes(n)));
#else
  float lanes[width] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return load(lanes);
#endif
}
inline void store_part(float* p, vf v, int64_t n) {
#if SIMD_WIDTH == 16
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
#elif SIMD_WIDTH == 8
  _mm256_maskstore_ps(p, reinterpret_cast<__m256i>(first_lanes(n)), v);
#else
  float lanes[width];
  store(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
#endif
}

// One byte of 0 or 1 for each lane of a mask, and back.
inline void store_bools(uint8_t* p, vi mask) {
#if SIMD_WIDTH == 16
  *reinterpret_cast<vbytes_unaligned*>(p) = __builtin_convertvector(-mask, vbytes);
#else
#if SIMD_WIDTH == 8
  const auto whole = reinterpret_cast<__m256i>(mask);
  const __m128i low = _mm256_castsi256_si128(whole), high = _mm256_extracti128_si256(whole, 1);
#else
  const auto low = reinterpret_cast<__m128i>(mask), high = low;
#endif
  const __m128i words = _mm_packs_epi32(low, high);
  const __m128i bytes = _mm_and_si128(_mm_packs_epi16(words, words), _mm_set1_epi8(1));
  std::memcpy(p, &bytes, width);
#endif
}
// g++ 12 makes a widening __builtin_convertvector of many instructions.
inline vi load_bools(const uint8_t* p) {
#if SIMD_WIDTH == 16
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<vi>(_mm512_maskz_cvtepi8_epi32(0xffff, bytes)) != 0;
#elif SIMD_WIDTH == 8
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<vi>(_mm256_cvtepi8_epi32(bytes)) != 0;
#else
  return __builtin_convertvector(*reinterpret_cast<const vbytes_unaligned*>(p), vi) != 0;
#endif
}

inline bool any(vi mask) {
#if SIMD_WIDTH == 16
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) != 0;
#elif SIMD_WIDTH == 8
  return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)) != 0;
#else
  return _mm_movemask_epi8(reinterpret_cast<__m128i>(mask)) != 0;
#endif
}

inline vf abs(vf x) { return as_float(as_int(x) & 0x7fffffff); }
// The magnitude of x with the sign of `sign`.
inline vf copysign(vf x, vf sign) {
  return as_float((as_int(x) & 0x7fffffff) | (as_int(sign) & INT32_MIN));
}

// As torch: a NaN on either side gives NaN.
inline vf minimum(vf x, vf y) { return select((x < y) | (x != x), x, y); }
inline vf maximum(vf x, vf y) { return select((x > y) | (x != x), x, y); }

// x * y + z, rounded once where the instruction set can. The compiler decides for itself elsewhere,
// and not alike for a loop with a constant operand and one without.
inline vf multiply_add(vf x, vf y, vf z) {
#if SIMD_WIDTH == 16
  return _mm512_fmadd_ps(x, y, z);
#elif SIMD_WIDTH == 8
  return _mm256_fmadd_ps(x, y, z);
#else
  return x * y + z;
#endif
}

inline vf sqrt(vf x) {
#if SIMD_WIDTH == 16
  return _mm512_maskz_sqrt_ps(0xffff, x);
#elif SIMD_WIDTH == 8
  return _mm256_sqrt_ps(x);
#else
  return _mm_sqrt_ps(x);
#endif
}

// 1 / x for x and results that are finite, normal and not 0: within 1 unit in the last place.
inline vf reciprocal(vf x) {
#if SIMD_WIDTH == 16
  const vf estimate = _mm512_maskz_rcp14_ps(0xffff, x);
  return estimate + estimate * (1.0f - x * estimate);
#else
  return 1.0f / x;
#endif
}

// f of each lane, for functions without a vector form.
template <float (*f)(float)>
inline vf lanes(vf x) {
  float values[width];
  store(values, x);
  for (int i = 0; i < width; ++i) values[i] = f(values[i]);
  return load(values);
}
template <float (*f)(float, float)>
inline vf lanes(vf x, vf y) {
  float a[width], b[width];
  store(a, x);
  store(b, y);
  for (int i = 0; i < width; ++i) a[i] = f(a[i], b[i]);
  return load(a);
}

#if SIMD_WIDTH == 4
// SSE2 rounds by its conversion to int; from 2^23 on every float is a whole number.
inline vf round(vf x) {
  const vf whole = to_float(reinterpret_cast<vi>(_mm_cvtps_epi32(x)));
  return select(abs(x) < 8388608.0f, copysign(whole, x), x);
}
inline vf trunc(vf x) { return select(abs(x) < 8388608.0f, copysign(to_float(to_int(x)), x), x); }
inline vf floor(vf x) {
  const vf whole = trunc(x);
  return select(whole > x, whole - 1.0f, whole);
}
inline vf ceil(vf x) {
  const vf whole = trunc(x);
  return select(whole < x, copysign(whole + 1.0f, x), whole);
}
#elif SIMD_WIDTH == 8
inline vf round(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline vf trunc(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
inline vf floor(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
inline vf ceil(vf x) { return _mm256_round_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
#else
// Forms with a mask of all lanes: the plain ones read an uninitialized vector in g++ 12's header.
inline vf round(vf x) { return _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_NEAREST_INT); }
inline vf trunc(vf x) { return _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_ZERO); }
inline vf floor(vf x) { return _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_NEG_INF); }
inline vf ceil(vf x) { return _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_POS_INF); }
#endif

// The lanes of one vector joined pairwise: each of the first half with the one at the same position
// of the other half, and so on.
inline float join_lanes(vf v, const auto& join) {
#if SIMD_WIDTH == 16
  const __m256 of16 = join(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
#elif SIMD_WIDTH == 8
  const __m256 of16 = v;
#endif
#if SIMD_WIDTH == 4
  const __m128 of8 = v;
#else
  const __m128 of8 = join(_mm256_castps256_ps128(of16), _mm256_extractf128_ps(of16, 1));
#endif
  const __m128 of4 = join(of8, _mm_movehl_ps(of8, of8));
  return join(of4, _mm_shuffle_ps(of4, of4, 1))[0];
}
inline float sum(vf v) {
  return join_lanes(v, [](auto a, auto b) { return a + b; });
}
