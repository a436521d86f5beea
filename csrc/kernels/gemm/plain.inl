// The loops of plain_block (gemm/algorithms.h).

// Integers are summed unsigned, which may wrap.
template <typename T>
using PlainSum = std::conditional_t<std::is_floating_point_v<T>, double,
                                    std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

constexpr int64_t plain_width = kernels::plain_width;

// In the order of the elements. Where both operands lie so, the compiler makes vectors of integers.
template <typename S, typename T>
inline S sum_of_products(const T* a, int64_t step_a, const T* b, int64_t count) {
  S sum = 0;
  if (step_a == 1) {
    for (int64_t p = 0; p < count; ++p) sum += static_cast<S>(a[p]) * static_cast<S>(b[p]);
  } else {
    for (int64_t p = 0; p < count; ++p) sum += static_cast<S>(a[p * step_a]) * static_cast<S>(b[p]);
  }
  return sum;
}

// The row's products with `columns` columns of b.
template <typename S, typename T>
inline void sum_columns(int64_t k, const T* row, int64_t step_a, const T* b, int64_t ldb,
                        int64_t columns, S* sums) {
  for (int64_t p = 0; p < k; ++p) {
    const S x = static_cast<S>(row[p * step_a]);
    const T* other = b + p * ldb;
    for (int64_t j = 0; j < columns; ++j) sums[j] += x * static_cast<S>(other[j]);
  }
}

// Columns that lie by themselves, as rows of `plain_width` numbers.
template <typename T>
inline void turn_columns(const kernels::Gemm& g, const T* b, int64_t columns, T* turned) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t p = 0; p < g.k; ++p) turned[p * plain_width + j] = b[j * g.ldb + p];
  }
}

// `turned`: memory for g.k rows of plain_width numbers if b lies transposed and is to be turned,
// else null.
template <typename T>
inline void plain_products(const kernels::Gemm& g, const T* a, const T* b, T* c, T* turned) {
  using S = PlainSum<T>;
  const auto scale = [](double x) {
    return std::is_integral_v<T> ? static_cast<S>(static_cast<int64_t>(x)) : static_cast<S>(x);
  };
  const S alpha = scale(g.alpha), beta = scale(g.beta);
  const int64_t row_a = g.trans_a ? 1 : g.lda, step_a = g.trans_a ? g.lda : 1;
  const int64_t ldb = turned == nullptr ? g.ldb : plain_width;
  for (int64_t j0 = 0; j0 < g.n; j0 += plain_width) {
    const int64_t columns = std::min(plain_width, g.n - j0);
    const T* block = b + j0 * (g.trans_b ? g.ldb : 1);
    if (turned != nullptr) {
      turn_columns(g, block, columns, turned);
      block = turned;
    }
    for (int64_t i = 0; i < g.m; ++i) {
      S sums[plain_width] = {};
      const T* row = a + i * row_a;
      if (g.trans_b && turned == nullptr) {
        for (int64_t j = 0; j < columns; ++j) {
          sums[j] = sum_of_products<S>(row, step_a, block + j * ldb, g.k);
        }
      } else if (columns == plain_width) {
        sum_columns<S>(g.k, row, step_a, block, ldb, plain_width, sums);  // in registers
      } else {
        sum_columns<S>(g.k, row, step_a, block, ldb, columns, sums);
      }
      T* out = c + i * g.ldc + j0;
      for (int64_t j = 0; j < columns; ++j) {
        const S old = g.beta == 0 ? S{0} : static_cast<S>(beta * static_cast<S>(out[j]));
        out[j] = static_cast<T>(alpha * sums[j] + old);
      }
    }
  }
}
