#include "kernels/simd/vec/half.inl"

template <vf (*upcast)(vhalf)>
inline void upcast_all(const uint16_t* x, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(out + i, upcast(load_half(x + i)));
  if (i < n) store_part(out + i, upcast(load_half_part(x + i, n - i)), n - i);
}

// One call for short rows: each takes little longer than a call.
template <vf (*upcast)(vhalf)>
inline void upcast_rows(const uint16_t* x, float* out, const StridedRows& rows) {
  for (int64_t i = 0; i < rows.count; ++i) {
    upcast_all<upcast>(x + i * rows.x_step, out + i * rows.out_step, rows.n);
  }
}

template <vhalf (*downcast)(vf)>
inline void downcast_all(const float* x, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store_half(out + i, downcast(load(x + i)));
  if (i < n) store_half_part(out + i, downcast(load_part(x + i, n - i)), n - i);
}

template <vf (*round_one)(vf)>
inline void round_all(float* x, int64_t n) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(x + i, round_one(load(x + i)));
  if (i < n) store_part(x + i, round_one(load_part(x + i, n - i)), n - i);
}

inline constexpr ConvertTable convert_functions = {
    upcast_all<upcast_f16>,     upcast_all<upcast_bf16>,     upcast_rows<upcast_f16>,
    upcast_rows<upcast_bf16>,   downcast_all<downcast_f16>, downcast_all<downcast_bf16>,
    round_all<round_f16>,       round_all<round_bf16>};
