#include "kernels/gemm.h"

#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "kernels/blas.h"
#include "kernels/gemm_small.h"
#include "kernels/gemm_split.h"
#include "support/error.h"
#include "support/parallel.h"
#include "support/switches.h"

namespace poptorch::kernels {

namespace {

// The Fortran interface: column-major, everything by pointer.
template <typename T>
using BlasGemm = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n,
                          const int* k, const T* alpha, const T* a, const int* lda, const T* b,
                          const int* ldb, const T* beta, T* c, const int* ldc);

template <typename T>
BlasGemm<T> blas_gemm() {
  constexpr const char* name = std::is_same_v<T, float> ? "sgemm_" : "dgemm_";
  static const auto function = find_symbol<BlasGemm<T>>(name);
  return function;
}

template <typename T>
void blas_block(const Gemm& g, const T* a, const T* b, T* c) {
  // A row-major matrix is the transpose of a column-major one: c^T = op(b)^T op(a)^T.
  const int m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  const int lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb);
  const int ldc = static_cast<int>(g.ldc);
  const T alpha = static_cast<T>(g.alpha), beta = static_cast<T>(g.beta);
  const SingleThreadedBlas single;
  blas_gemm<T>()(g.trans_b ? "T" : "N", g.trans_a ? "T" : "N", &n, &m, &k, &alpha, b, &ldb, a,
                 &lda, &beta, c, &ldc);
}

// Integers are summed unsigned, which may wrap.
template <typename T>
struct Sum {
  using type = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
};
template <>
struct Sum<float> {
  using type = double;
};
template <>
struct Sum<double> {
  using type = double;
};

template <typename T>
void plain_block(const Gemm& g, const T* a, const T* b, T* c) {
  using S = typename Sum<T>::type;
  constexpr int64_t width = 64;  // columns summed at once
  const auto scale = [](double x) {
    return std::is_integral_v<T> ? static_cast<S>(static_cast<int64_t>(x)) : static_cast<S>(x);
  };
  const S alpha = scale(g.alpha), beta = scale(g.beta);
  const int64_t row_a = g.trans_a ? 1 : g.lda, step_a = g.trans_a ? g.lda : 1;
  const int64_t row_b = g.trans_b ? 1 : g.ldb, step_b = g.trans_b ? g.ldb : 1;
  for (int64_t j0 = 0; j0 < g.n; j0 += width) {
    const int64_t columns = std::min(width, g.n - j0);
    for (int64_t i = 0; i < g.m; ++i) {
      S sums[width] = {};
      for (int64_t p = 0; p < g.k; ++p) {
        const S x = static_cast<S>(a[i * row_a + p * step_a]);
        const T* row = b + p * row_b + j0 * step_b;
        for (int64_t j = 0; j < columns; ++j) sums[j] += x * static_cast<S>(row[j * step_b]);
      }
      T* out = c + i * g.ldc + j0;
      for (int64_t j = 0; j < columns; ++j) {
        const S old = g.beta == 0 ? S{0} : static_cast<S>(beta * static_cast<S>(out[j]));
        out[j] = static_cast<T>(alpha * sums[j] + old);
      }
    }
  }
}

template <typename T>
void one_block(const Gemm& g, const T* a, const T* b, T* c) {
  if constexpr (std::is_floating_point_v<T>) {
    if (blas_gemm<T>() != nullptr) return blas_block(g, a, b, c);
  }
  plain_block(g, a, b, c);
}

// How blocks of c are computed, and the multiples at which c may be cut so that no element changes
// its place in a tile.
template <typename T>
struct Method {
  void (*block)(const Gemm&, const T* a, const T* b, T* c) = one_block<T>;
  int64_t row_tile = 24, column_tile = 48;  // multiples of those of BLAS kernels
  bool finishes = false;  // applies scale, bias and relu itself
  // Whether a sum is taken in the same order whatever the block around it is.
  bool is_even = !std::is_floating_point_v<T>;

  explicit Method(const Gemm& g) {
    if constexpr (std::is_same_v<T, float>) {
      if (split_gemm_pays(g)) {
        block = split_gemm;
        row_tile = column_tile = split_side;
        finishes = is_even = true;
      } else if (small_gemm_pays(g)) {
        block = small_gemm;
      }
    }
  }
};

// Bias and relu of a block that is done.
template <typename T>
void finish([[maybe_unused]] const Gemm& g, [[maybe_unused]] T* c) {
  if constexpr (std::is_same_v<T, float>) {
    if (g.bias == nullptr && !g.relu) return;
    for (int64_t i = 0; i < g.m; ++i) {
      float* row = c + i * g.ldc;
      for (int64_t j = 0; g.bias != nullptr && j < g.n; ++j) row[j] += g.bias[j];
      for (int64_t j = 0; g.relu && j < g.n; ++j) row[j] = row[j] < 0 ? 0 : row[j];
    }
  }
}

template <typename T>
void run_block(const Method<T>& method, const Gemm& g, const T* a, const T* b, T* c) {
  method.block(g, a, b, c);
  if (!method.finishes) finish(g, c);
}

int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

// How c is cut into blocks, one for each thread.
struct Cut {
  int64_t rows = 1, columns = 1;
};

// BLAS libraries choose kernels, and the pieces in which they sum, by the size of a product. They
// choose the same for all blocks whose sides are this long, less what a cut at tiles takes: 240.
constexpr int64_t steady_side = 256;

bool is_steady(const Gemm& g) { return std::min(g.m, g.n) >= 2 * steady_side; }

// How many blocks at most. A BLAS is given blocks that do not depend on the number of threads,
// where it might sum them in different orders.
template <typename T>
int64_t most_blocks(const Gemm& g, const Method<T>& method, int threads) {
  const int64_t work = g.m * g.n * std::max<int64_t>(g.k, 1);
  if (method.is_even || is_steady(g)) return std::min<int64_t>(threads, work / gemm_grain);
  constexpr int64_t large = int64_t{1} << 24, most = 8;  // costs little to cut from here on
  return work < 2 * gemm_grain ? 1 : std::clamp<int64_t>(work / large, 2, most);
}

// The cut into at most `parts` blocks that reads least: each block reads its rows of a and its
// columns of b.
template <typename T>
Cut choose_cut(const Gemm& g, const Method<T>& method, int64_t parts) {
  Cut best;
  double least = -1;
  const bool stays_steady = !method.is_even && is_steady(g);
  const auto most = [&](int64_t n, int64_t tile) {
    return stays_steady ? n / steady_side : tiles_of(n, tile);
  };
  for (int64_t rows = 1; rows <= std::min(parts, most(g.m, method.row_tile)); ++rows) {
    const int64_t columns = std::min(parts / rows, most(g.n, method.column_tile));
    const double reads = static_cast<double>(columns) * static_cast<double>(g.m) +
                         static_cast<double>(rows) * static_cast<double>(g.n);
    // Uneven cuts leave threads idle: count the blocks that are missing as so much more to read.
    const double cost = reads * static_cast<double>(parts) / static_cast<double>(rows * columns);
    if (least < 0 || cost < least) {
      least = cost;
      best = {rows, columns};
    }
  }
  return best;
}

// Part i of `parts` of [0, n), cut at multiples of `tile`.
int64_t cut_at(int64_t n, int64_t tile, int64_t i, int64_t parts) {
  return std::min(n, tiles_of(n, tile) * i / parts * tile);
}

// A small c with a long sum, as weight gradients are: the sum is cut, c could not be.
constexpr int64_t deep_parts = 8, deep_numbers = 4096;

bool is_deep(const Gemm& g) {
  static const bool on = is_on("split_sums");
  return on && g.m * g.n <= deep_numbers && g.k >= 4096;
}

// The sum is always cut into the same parts, which are joined in their order.
template <typename T>
void deep_gemm(const Gemm& g, const T* a, const T* b, T* c, int threads) {
  alignas(64) T sums[deep_parts][deep_numbers];
  const int64_t grain = std::max<int64_t>(1, gemm_grain * deep_parts / (g.m * g.n * g.k));
  parallel_for(threads, deep_parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = g.k * part / deep_parts;
      Gemm block = g;
      block.k = g.k * (part + 1) / deep_parts - from;
      block.ldc = g.n;
      block.beta = 0;
      one_block(block, a + from * (g.trans_a ? g.lda : 1), b + from * (g.trans_b ? 1 : g.ldb),
                sums[part]);
    }
  });
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      T sum = sums[0][i * g.n + j];
      for (int64_t part = 1; part < deep_parts; ++part) sum += sums[part][i * g.n + j];
      T& out = c[i * g.ldc + j];
      out = g.beta == 0 ? sum : static_cast<T>(g.beta) * out + sum;
    }
  }
}

}  // namespace

template <typename T>
void gemm(const Gemm& g, const T* a, const T* b, T* c, int threads) {
  if (g.m == 0 || g.n == 0) return;
  if constexpr (std::is_floating_point_v<T>) {
    if (g.scale == nullptr && is_deep(g)) {
      deep_gemm(g, a, b, c, threads);
      return finish(g, c);
    }
  }
  const Method<T> method(g);
  INTERNAL_CHECK(g.scale == nullptr || method.finishes, "a product of ", g.m, " x ", g.n, " x ",
                 g.k, " has a scale");
  const int64_t parts = most_blocks(g, method, omp_in_parallel() ? 1 : threads);
  if (parts <= 1) return run_block(method, g, a, b, c);
  const Cut cut = choose_cut(g, method, parts);
  parallel_for(threads, cut.rows * cut.columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t i = part / cut.columns, j = part % cut.columns;
      const int64_t row = cut_at(g.m, method.row_tile, i, cut.rows);
      const int64_t column = cut_at(g.n, method.column_tile, j, cut.columns);
      Gemm block = g;
      block.m = cut_at(g.m, method.row_tile, i + 1, cut.rows) - row;
      block.n = cut_at(g.n, method.column_tile, j + 1, cut.columns) - column;
      if (block.m == 0 || block.n == 0) continue;
      if (g.bias != nullptr) block.bias = g.bias + column;
      if (g.scale != nullptr) block.scale = g.scale + column;
      run_block(method, block, a + (g.trans_a ? row : row * g.lda),
                b + (g.trans_b ? column * g.ldb : column), c + row * g.ldc + column);
    }
  });
}

template void gemm(const Gemm&, const float*, const float*, float*, int);
template void gemm(const Gemm&, const double*, const double*, double*, int);
template void gemm(const Gemm&, const uint8_t*, const uint8_t*, uint8_t*, int);
template void gemm(const Gemm&, const int8_t*, const int8_t*, int8_t*, int);
template void gemm(const Gemm&, const int16_t*, const int16_t*, int16_t*, int);
template void gemm(const Gemm&, const int32_t*, const int32_t*, int32_t*, int);
template void gemm(const Gemm&, const int64_t*, const int64_t*, int64_t*, int);

}  // namespace poptorch::kernels
