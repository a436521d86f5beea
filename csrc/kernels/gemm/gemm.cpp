#include "kernels/gemm/gemm.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/gemm/bf16x3.h"
#include "kernels/gemm/blas.h"
#include "kernels/gemm/blocked.h"
#include "kernels/gemm/small.h"
#include "support/error.h"
#include "support/parallel.h"
#include "support/switches.h"
#include "support/thread_memory.h"

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
    if (blas_gemm<T>() != nullptr && fits_blas(g)) return blas_block(g, a, b, c);
  }
  plain_block(g, a, b, c);
}

// How blocks of c and parts of their sums are computed, and the multiples at which c may be cut so
// that no element changes its place in a tile.
template <typename T>
struct Method {
  void (*block)(const Gemm&, const T* a, const T* b, T* c) = one_block<T>;
  void (*part_of_sums)(const Gemm&, const T* a, const T* b, T* c) = one_block<T>;
  int64_t row_tile = 24, column_tile = 48;  // multiples of those of BLAS kernels
  // What a cut costs, in multiplications for each number of b and of a that is read anew.
  double row_cost = 64, column_cost = 64;
  bool finishes = false;  // the block applies scale, bias and relu itself
  // Whether a sum is taken in the same order whatever the block around it is.
  bool is_even = !std::is_floating_point_v<T>;

  explicit Method(const Gemm& g) {
    if constexpr (std::is_same_v<T, float>) {
      if (bf16x3_gemm_pays(g)) {
        block = bf16x3_gemm;
        row_tile = column_tile = split_side;
        finishes = is_even = true;
      } else if (small_gemm_pays(g)) {
        block = small_gemm;
      } else if (blocked_gemm_pays(g)) {
        block = part_of_sums = blocked_gemm;
        row_tile = blocked_rows;
        column_tile = blocked_columns;
        row_cost = blocked_row_cost;
        column_cost = blocked_column_cost(g);
        finishes = is_even = true;
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

// How a product is cut: c into blocks, and the sum of each element into parts, which are joined in
// their order.
struct Cut {
  int64_t rows = 1, columns = 1, depth = 1;

  int64_t count() const { return rows * columns * depth; }
};

// BLAS libraries choose kernels, and the pieces in which they sum, by the size of a product. They
// choose the same for all blocks whose sides are this long, less what a cut at tiles takes: 240.
constexpr int64_t steady_side = 256;

bool is_steady(const Gemm& g) { return std::min(g.m, g.n) >= 2 * steady_side; }

// Whether sums may be cut. The bits follow from the cut, so it may not depend on `threads`.
template <typename T>
bool may_cut_sums(const Gemm& g, const Method<T>& method) {
  return is_on("split_k") && g.scale == nullptr && std::is_floating_point_v<T> &&
         (is_deep(g) || (!method.is_even && !is_steady(g)));
}

// How many blocks at most. A BLAS is given blocks that do not depend on the number of threads,
// where it might sum them in different orders.
template <typename T>
int64_t most_blocks(const Gemm& g, const Method<T>& method, int threads) {
  const int64_t work = g.m * g.n * std::max<int64_t>(g.k, 1);
  constexpr int64_t large = int64_t{1} << 24, most = 8;  // costs little to cut from here on
  if (may_cut_sums(g, method) && is_deep(g)) return most;
  if (method.is_even || is_steady(g)) return std::min<int64_t>(threads, work / gemm_grain);
  if (work < 2 * gemm_grain) return 1;
  // A power of two: three blocks would take two threads as long as four.
  const uint64_t blocks = std::bit_floor(static_cast<uint64_t>(work / large));
  return std::clamp<int64_t>(static_cast<int64_t>(blocks), 2, most);
}

// Numbers of c that parts of sums may take beside c itself.
constexpr int64_t most_sums = 1 << 19;

// Time of a multiplication in a block, in units of one that is alone: each number of a is read and
// packed for a block's columns, each of b for its rows, and each part of a sum is written and read.
template <typename T>
double cost_of(const Gemm& g, const Method<T>& method, const Cut& cut) {
  constexpr double sum_cost = 64;
  const auto share = [](int64_t parts, int64_t n) {
    return static_cast<double>(parts) / static_cast<double>(std::max<int64_t>(n, 1));
  };
  const double sums = cut.depth == 1 ? 0 : sum_cost * share(cut.depth, g.k);
  return 1 + method.row_cost * share(cut.rows, g.m) + method.column_cost * share(cut.columns, g.n) +
         sums;
}

// The cheapest cut into at most `parts`. Missing ones leave threads idle.
template <typename T>
Cut choose_cut(const Gemm& g, const Method<T>& method, int64_t parts) {
  Cut best;
  double least = -1;
  const bool stays_steady = !method.is_even && is_steady(g);
  const auto most = [&](int64_t n, int64_t tile) {
    return stays_steady ? n / steady_side : tiles_of(n, tile);
  };
  const auto try_cut = [&](const Cut& cut) {
    const double cost =
        cost_of(g, method, cut) * static_cast<double>(parts) / static_cast<double>(cut.count());
    if (least < 0 || cost < least) {
      least = cost;
      best = cut;
    }
  };
  const int64_t most_depth = may_cut_sums(g, method) ? 1 + most_sums / (g.m * g.n) : 1;
  for (int64_t depth = 1; depth <= std::min(parts, most_depth); ++depth) {
    for (int64_t rows = 1; rows <= std::min(parts / depth, most(g.m, method.row_tile)); ++rows) {
      try_cut({rows, std::min(parts / depth / rows, most(g.n, method.column_tile)), depth});
    }
  }
  return best;
}

// Part i of `parts` of [0, n), cut at multiples of `tile`.
int64_t cut_at(int64_t n, int64_t tile, int64_t i, int64_t parts) {
  return std::min(n, tiles_of(n, tile) * i / parts * tile);
}

// Memory for parts of sums, `most_sums` numbers at most, of the calling thread. It begins on a
// cache line, since a BLAS may sum in another order elsewhere.
template <typename T>
T* sums_of_thread(int64_t count) {
  thread_local ThreadMemory memory;
  return memory.numbers<T>(count);
}

// Block `part` of the cut; parts of sums after the first one go to `sums`, which are as large as c.
template <typename T>
void run_part(const Method<T>& method, const Gemm& g, const Cut& cut, int64_t part, const T* a,
              const T* b, T* c, T* sums) {
  const int64_t layer = part / (cut.rows * cut.columns);
  const int64_t i = part / cut.columns % cut.rows, j = part % cut.columns;
  const int64_t row = cut_at(g.m, method.row_tile, i, cut.rows);
  const int64_t column = cut_at(g.n, method.column_tile, j, cut.columns);
  const int64_t from = g.k * layer / cut.depth;
  Gemm block = g;
  block.m = cut_at(g.m, method.row_tile, i + 1, cut.rows) - row;
  block.n = cut_at(g.n, method.column_tile, j + 1, cut.columns) - column;
  block.k = g.k * (layer + 1) / cut.depth - from;
  if (block.m == 0 || block.n == 0) return;
  a += g.trans_a ? from * g.lda + row : row * g.lda + from;
  b += g.trans_b ? column * g.ldb + from : from * g.ldb + column;
  if (cut.depth == 1) {
    if (g.bias != nullptr) block.bias = g.bias + column;
    if (g.scale != nullptr) block.scale = g.scale + column;
    return run_block(method, block, a, b, c + row * g.ldc + column);
  }
  block.bias = nullptr;
  block.relu = false;
  if (layer == 0) return method.part_of_sums(block, a, b, c + row * g.ldc + column);
  block.beta = 0;
  block.ldc = g.n;
  method.part_of_sums(block, a, b, sums + ((layer - 1) * g.m + row) * g.n + column);
}

// Adds the parts of the sums to c.
template <typename T>
void join_sums(const Gemm& g, int64_t layers, const T* sums, T* c, int threads) {
  const int64_t grain = std::max<int64_t>(1, 16384 / (g.n * layers));
  parallel_for(threads, g.m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t layer = 0; layer < layers; ++layer) {
        const T* from = sums + (layer * g.m + i) * g.n;
        for (int64_t j = 0; j < g.n; ++j) c[i * g.ldc + j] += from[j];
      }
    }
    Gemm done = g;
    done.m = end - begin;
    finish(done, c + begin * g.ldc);
  });
}

}  // namespace

bool is_deep(const Gemm& g) { return g.m * g.n <= 4096 && g.k >= 4096; }

bool takes_scale(const Gemm& g) { return Method<float>(g).finishes; }

template <typename T>
void gemm(const Gemm& g, const T* a, const T* b, T* c, int threads) {
  if (g.m == 0 || g.n == 0) return;
  const Method<T> method(g);
  INTERNAL_CHECK(g.scale == nullptr || method.finishes, "a product of ", g.m, " x ", g.n, " x ",
                 g.k, " has a scale");
  const int64_t parts = most_blocks(g, method, omp_in_parallel() ? 1 : threads);
  if (parts <= 1) return run_block(method, g, a, b, c);
  const Cut cut = choose_cut(g, method, parts);
  T* sums = cut.depth == 1 ? nullptr : sums_of_thread<T>((cut.depth - 1) * g.m * g.n);
  const int64_t work = std::max<int64_t>(1, g.m * g.n * g.k);
  const int64_t grain = std::max<int64_t>(1, gemm_grain * cut.count() / work);
  parallel_for(threads, cut.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) run_part(method, g, cut, part, a, b, c, sums);
  });
  if (cut.depth > 1) join_sums(g, cut.depth - 1, sums, c, threads);
}

template <typename T>
void gemm_block(const Gemm& g, const T* a, const T* b, T* c) {
  if (g.m > 0 && g.n > 0) run_block(Method<T>(g), g, a, b, c);
}

template void gemm_block(const Gemm&, const float*, const float*, float*);
template void gemm_block(const Gemm&, const double*, const double*, double*);
template void gemm(const Gemm&, const float*, const float*, float*, int);
template void gemm(const Gemm&, const double*, const double*, double*, int);
template void gemm(const Gemm&, const uint8_t*, const uint8_t*, uint8_t*, int);
template void gemm(const Gemm&, const int8_t*, const int8_t*, int8_t*, int);
template void gemm(const Gemm&, const int16_t*, const int16_t*, int16_t*, int);
template void gemm(const Gemm&, const int32_t*, const int32_t*, int32_t*, int);
template void gemm(const Gemm&, const int64_t*, const int64_t*, int64_t*, int);

}  // namespace poptorch::kernels
