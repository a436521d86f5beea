typedef uint16_t vhalf __attribute__((vector_size(2 * SIMD_WIDTH)));
typedef uint16_t vhalf_unaligned
    __attribute__((vector_size(2 * SIMD_WIDTH), aligned(2), may_alias));

inline vhalf load_half(const uint16_t* p) { return *reinterpret_cast<const vhalf_unaligned*>(p); }
inline void store_half(uint16_t* p, vhalf v) { *reinterpret_cast<vhalf_unaligned*>(p) = v; }

inline vf widen_bf16(vhalf v) {
  return reinterpret_cast<vf>(__builtin_convertvector(v, vu) << 16);
}

inline vhalf narrow_bf16(vf v) {
  const vu bits = reinterpret_cast<vu>(v);
  const vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const vu nan = vu{} + 0x7fc0;
  return __builtin_convertvector(v != v ? nan : rounded, vhalf);
}

#if SIMD_WIDTH == 16
inline vf widen_f16(vhalf v) { return _mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(v)); }
inline vhalf narrow_f16(vf v) {
  return reinterpret_cast<vhalf>(_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
}
#elif SIMD_WIDTH == 8
inline vf widen_f16(vhalf v) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(v)); }
inline vhalf narrow_f16(vf v) {
  return reinterpret_cast<vhalf>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#else
inline vf widen_f16(vhalf v) {
  vf out;
  for (int i = 0; i < width; ++i) out[i] = f16_to_float(v[i]);
  return out;
}
inline vhalf narrow_f16(vf v) {
  vhalf out;
  for (int i = 0; i < width; ++i) out[i] = float_to_f16(v[i]);
  return out;
}
#endif

template <vf (*widen)(vhalf)>
inline void widen_all(const uint16_t* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(out + i, widen(load_half(x + i)));
  if (i == n) return;
  uint16_t rest[width] = {};
  std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(uint16_t));
  store_part(out + i, widen(load_half(rest)), n - i);
}

template <vhalf (*narrow)(vf)>
inline void narrow_all(const float* x, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store_half(out + i, narrow(load(x + i)));
  if (i == n) return;
  uint16_t rest[width];
  store_half(rest, narrow(load_part(x + i, n - i)));
  std::memcpy(out + i, rest, static_cast<size_t>(n - i) * sizeof(uint16_t));
}

inline constexpr ConvertTable convert_functions = {widen_all<widen_f16>, widen_all<widen_bf16>,
                                                   narrow_all<narrow_f16>, narrow_all<narrow_bf16>};
