// Squares of numbers in `width` vectors. Included by families inside the namespace of each_isa.h.

// The lanes of a and b alternating: of their first halves, and of their second ones.
inline vf zip_first(vf a, vf b) {
#if SIMD_WIDTH == 16
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif SIMD_WIDTH == 8
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
inline vf zip_second(vf a, vf b) {
#if SIMD_WIDTH == 16
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
#elif SIMD_WIDTH == 8
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Turns `width` vectors, seen as the rows of a square.
inline void transpose(vf (&rows)[width]) {
#pragma GCC unroll 16
  for (int stage = 1; stage < width; stage *= 2) {
    vf next[width];
#pragma GCC unroll 16
    for (int i = 0; i < width / 2; ++i) {
      next[2 * i] = zip_first(rows[i], rows[i + width / 2]);
      next[2 * i + 1] = zip_second(rows[i], rows[i + width / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) rows[i] = next[i];
  }
}

// At most n numbers; lanes past them are 0.
inline vf load_lanes(const float* p, int64_t n) {
  return n >= width ? load(p) : load_part(p, n);
}

// The transpose of `rows` <= width rows of n numbers: n vectors, `step` numbers apart, in which
// lanes past the rows are 0. load_from(i, p) is a vector of row i from number p on, past its end 0.
template <typename Load>
inline void transpose_loaded(const Load& load_from, int64_t rows, int64_t n, float* out,
                             int64_t step) {
  for (int64_t p = 0; p < n; p += width) {
    vf square[width] = {};
    for (int64_t i = 0; i < rows; ++i) square[i] = load_from(i, p);
    transpose(square);
    const int64_t count = std::min<int64_t>(width, n - p);
    for (int64_t i = 0; i < count; ++i) store(out + (p + i) * step, square[i]);
  }
}

// The same of rows in memory, `stride` apart.
inline void transpose_rows(const float* from, int64_t stride, int64_t rows, int64_t n, float* out,
                           int64_t step) {
  const auto load_from = [=](int64_t i, int64_t p) {
    return load_lanes(from + i * stride + p, n - p);
  };
  transpose_loaded(load_from, rows, n, out, step);
}
