#include "kernels/simd/half.inl"

template <vf (*widen)(vhalf)>
inline void widen_all(const uint16_t* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(out + i, widen(load_half(x + i)));
  if (i < n) store_part(out + i, widen(load_half_part(x + i, n - i)), n - i);
}

// One call for short rows, each of which takes little longer than a call.
template <vf (*widen)(vhalf)>
inline void widen_rows(const uint16_t* x, float* out, const Rows& rows) {
  for (int64_t i = 0; i < rows.count; ++i) {
    widen_all<widen>(x + i * rows.x_step, out + i * rows.out_step, rows.n);
  }
}

template <vhalf (*narrow)(vf)>
inline void narrow_all(const float* x, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store_half(out + i, narrow(load(x + i)));
  if (i < n) store_half_part(out + i, narrow(load_part(x + i, n - i)), n - i);
}

template <vf (*round_one)(vf)>
inline void round_all(float* x, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(x + i, round_one(load(x + i)));
  if (i < n) store_part(x + i, round_one(load_part(x + i, n - i)), n - i);
}

inline constexpr ConvertTable convert_functions = {
    widen_all<widen_f16>,   widen_all<widen_bf16>,   widen_rows<widen_f16>, widen_rows<widen_bf16>,
    narrow_all<narrow_f16>, narrow_all<narrow_bf16>, round_all<round_f16>,  round_all<round_bf16>};
