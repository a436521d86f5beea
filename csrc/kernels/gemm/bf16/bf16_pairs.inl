// Words of two bfloat16 numbers, for the instruction of AVX512-BF16 that multiplies pairs. Included
// after gemm/tiles.inl by files that are compiled for it.

// Two bfloat16 numbers, one behind the other in depth. A word is never a number of its own: it is
// moved as an integer, since as a float it could be a denormal.
struct Pairs {
  static vf every_lane(const float* word) {
    int32_t bits;
    std::memcpy(&bits, word, sizeof bits);
    return as_float(splat(bits));
  }
  static vf add_product(vf pair, vf pairs, vf sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pair),
                            reinterpret_cast<__m512bh>(pairs));
  }
};

template <>
struct Words<uint16_t> {
  using Product = Pairs;
  static constexpr int64_t numbers = 2;
  static constexpr int64_t of(int64_t depth) { return (depth + 1) / 2; }
  static vf first_numbers(vf words) { return as_float(as_int(words) & 0xffff); }
};

// The first n of 16 numbers side by side, each in a word.
inline vi load_numbers(const uint16_t* from, int64_t n) {
  const auto mask = static_cast<__mmask16>(n >= width ? 0xffff : (1 << n) - 1);
  const __m256i numbers = _mm256_maskz_loadu_epi16(mask, from);
  return reinterpret_cast<vi>(_mm512_maskz_cvtepu16_epi32(0xffff, numbers));
}

// Words of the first n of 16 numbers side by side and those `stride` further; without a `second`,
// of the former and 0.
inline vf zip_rows(const uint16_t* from, int64_t stride, int64_t n, bool second) {
  const vi low = load_numbers(from, n);
  return as_float(second ? load_numbers(from + stride, n) << 16 | low : low);
}

inline void copy_transposed(const uint16_t* from, int64_t stride, int64_t rows, int64_t depth,
                            float* copy) {
  for (int64_t p = 0; p < depth; p += 2) {
    for (int64_t at = 0; at < rows; at += width) {
      store(copy + p / 2 * rows + at,
            zip_rows(from + p * stride + at, stride, rows - at, p + 1 < depth));
    }
  }
}
