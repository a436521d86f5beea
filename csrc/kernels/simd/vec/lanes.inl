// Elements of a type T as vectors of floats: Lanes<T> reads and writes `width` of them, or the
// first `count` where they are fewer; 16-bit floats upcast and rounded. Included after half.inl.
template <typename T>
struct Lanes;

template <>
struct Lanes<float> {
  static vf get(const float* p) { return load(p); }
  static vf get(const float* p, int64_t count) {
    return count >= width ? load(p) : load_part(p, count);
  }
  static void put(float* p, vf v, int64_t count) {
    count >= width ? store(p, v) : store_part(p, v, count);
  }
};

template <typename T, vf (*upcast)(vhalf), vhalf (*downcast)(vf)>
struct HalfLanes {
  static vf get(const T* p) { return upcast(load_half(&p->bits)); }
  static vf get(const T* p, int64_t count) {
    return count >= width ? get(p) : upcast(load_half_part(&p->bits, count));
  }
  static void put(T* p, vf v, int64_t count) {
    count >= width ? store_half(&p->bits, downcast(v))
                   : store_half_part(&p->bits, downcast(v), count);
  }
};
template <>
struct Lanes<F16> : HalfLanes<F16, upcast_f16, downcast_f16> {};
template <>
struct Lanes<BF16> : HalfLanes<BF16, upcast_bf16, downcast_bf16> {};
