// Vectors of 16-bit floats and their conversions. Needs support/cpu/half.h, included before.

typedef uint16_t vhalf __attribute__((vector_size(2 * SIMD_WIDTH)));
typedef uint16_t vhalf_unaligned
    __attribute__((vector_size(2 * SIMD_WIDTH), aligned(2), may_alias));

inline vhalf load_half(const uint16_t* p) { return *reinterpret_cast<const vhalf_unaligned*>(p); }
inline void store_half(uint16_t* p, vhalf v) { *reinterpret_cast<vhalf_unaligned*>(p) = v; }

// 16 bits as the lower and as the upper half of 32.
#if SIMD_WIDTH == 16
typedef uint16_t vwords __attribute__((vector_size(4 * SIMD_WIDTH)));
inline vu words_of(vhalf v) {
  return reinterpret_cast<vu>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(v)));
}
#elif SIMD_WIDTH == 8
inline vu words_of(vhalf v) {
  return reinterpret_cast<vu>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(v)));
}
#else
inline vu words_of(vhalf v) { return __builtin_convertvector(v, vu); }
#endif
inline vu raise(vhalf v) { return words_of(v) << 16; }

inline vf upcast_bf16(vhalf v) { return reinterpret_cast<vf>(raise(v)); }

// The upper halves are the rounded numbers; the lower ones do not count. Not for NaN.
#if SIMD_WIDTH == 16
inline vu nearest_bf16(vf v) {
  const vu bits = reinterpret_cast<vu>(v);
  // bits + 0x7fff + (words & 1) as bits - (0xffff8000 | (~words & 1)): fewer instructions.
  const auto words = reinterpret_cast<__m512i>(bits >> 16);
  constexpr int keeps_third_or_second_without_first = 0xae;
  const __m512i less =
      _mm512_ternarylogic_epi32(words, _mm512_set1_epi32(1), _mm512_set1_epi32(-0x8000),
                                keeps_third_or_second_without_first);
  return bits - reinterpret_cast<vu>(less);
}
// Downcast and upcast again; a NaN stays as it is.
inline vf round_bf16(vf v) {
  const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
  const auto bits = reinterpret_cast<__m512i>(v);
  const auto nearest = reinterpret_cast<__m512i>(nearest_bf16(v));
  return reinterpret_cast<vf>(
      _mm512_mask_and_epi32(bits, number, nearest, _mm512_set1_epi32(-0x10000)));
}
// The permutation that takes the upper halves puts NaN in, too.
inline vhalf downcast_bf16(vf v) {
  const __mmask32 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
  constexpr vwords uppers = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  const auto words = reinterpret_cast<vwords>(_mm512_mask_permutexvar_epi16(
      _mm512_set1_epi16(0x7fc0), number, reinterpret_cast<__m512i>(uppers),
      reinterpret_cast<__m512i>(nearest_bf16(v))));
  return __builtin_shufflevector(words, words, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                 15);
}
#else
inline vu nearest_bf16(vf v) {
  const vu bits = reinterpret_cast<vu>(v);
  return bits + 0x7fff + ((bits >> 16) & 1);
}
inline vf round_bf16(vf v) {
  return v != v ? v : reinterpret_cast<vf>(nearest_bf16(v) & 0xffff0000);
}
inline vhalf downcast_bf16(vf v) {
  const vu nan = vu{} + 0x7fc00000;
  return __builtin_convertvector((v != v ? nan : nearest_bf16(v)) >> 16, vhalf);
}
#endif

#if SIMD_WIDTH == 16
inline vf upcast_f16(vhalf v) {
  return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(v));
}
inline vhalf downcast_f16(vf v) {
  return reinterpret_cast<vhalf>(_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
}
#elif SIMD_WIDTH == 8
inline vf upcast_f16(vhalf v) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(v)); }
inline vhalf downcast_f16(vf v) {
  return reinterpret_cast<vhalf>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#else
inline vf upcast_f16(vhalf v) {
  vf out;
  for (int i = 0; i < width; ++i) out[i] = f16_to_float(v[i]);
  return out;
}
inline vhalf downcast_f16(vf v) {
  vhalf out;
  for (int i = 0; i < width; ++i) out[i] = float_to_f16(v[i]);
  return out;
}
#endif

inline vf round_f16(vf v) { return upcast_f16(downcast_f16(v)); }

// The first n lanes (n < width), others 0. Nothing past them is touched.
inline vhalf load_half_part(const uint16_t* p, int64_t n) {
  uint16_t lanes[width] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_half(lanes);
}
inline void store_half_part(uint16_t* p, vhalf v, int64_t n) {
  uint16_t lanes[width];
  store_half(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(uint16_t));
}
