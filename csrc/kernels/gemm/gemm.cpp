#include "kernels/gemm/gemm.h"

#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/algorithms.h"
#include "support/ceil_div.h"
#include "support/memory/thread_memory.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

template <typename T>
GemmLoops<T> loops_of(const GemmMethod& method) {
  if constexpr (std::is_same_v<T, float>) return method.f32;
  if constexpr (std::is_same_v<T, double>) return method.f64;
  return plain_block<T>;
}

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
void run_block(const GemmMethod& method, const Gemm& g, const T* a, const T* b, T* c) {
  loops_of<T>(method)(g, a, b, c);
  if (!method.finishes) finish(g, c);
}

// Part i of `parts` of [0, n), cut at multiples of `tile`.
int64_t cut_at(int64_t n, int64_t tile, int64_t i, int64_t parts) {
  return std::min(n, ceil_div(n, tile) * i / parts * tile);
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
void run_part(const GemmMethod& method, const Gemm& g, const Cut& cut, int64_t part, const T* a,
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
  if (layer == 0) return loops_of<T>(method)(block, a, b, c + row * g.ldc + column);
  block.beta = 0;
  block.ldc = g.n;
  loops_of<T>(method)(block, a, b, sums + ((layer - 1) * g.m + row) * g.n + column);
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

bool takes_scale(const Gemm& g) { return gemm_table().choose({g}).make->finishes; }

template <typename T>
PreparedGemm<T>::PreparedGemm(const Gemm& g, const GemmMethod& method)
    : gemm_(g),
      method_(&method == &split_k_method ? &method_of_parts({g, gemm_dtype<T>()}) : &method),
      splits_(&method == &split_k_method) {}

template <typename T>
PreparedGemm<T>::PreparedGemm(const Gemm& g) : gemm_(g) {
  const GemmTable::Choice choice =
      gemm_table().chosen({g, gemm_dtype<T>(), false, /*is_prepared=*/true});
  *this = PreparedGemm(g, *choice.row->make);
  algorithm_ = choice.text();
}

template <typename T>
void gemm(const Gemm& g, const T* a, const T* b, T* c, int threads) {
  if (g.m == 0 || g.n == 0) return;
  PreparedGemm<T>(g, *gemm_table().choose({g, gemm_dtype<T>()}).make).run(a, b, c, threads);
}

template <typename T>
void PreparedGemm<T>::run(const T* a, const T* b, T* c, int threads) const {
  const Gemm& g = gemm_;
  if (g.m == 0 || g.n == 0) return;
  const Cut cut = choose_cut(g, *method_, splits_, omp_in_parallel() ? 1 : threads);
  if (cut.count() == 1) return run_block(*method_, g, a, b, c);
  T* sums = cut.depth == 1 ? nullptr : sums_of_thread<T>((cut.depth - 1) * g.m * g.n);
  const int64_t grain = std::max<int64_t>(1, gemm_grain * cut.count() / work_of(g));
  parallel_for(threads, cut.count(), grain, [&](int64_t part) {
    run_part(*method_, g, cut, part, a, b, c, sums);
  });
  if (cut.depth > 1) join_sums(g, cut.depth - 1, sums, c, threads);
}

template <typename T>
void gemm_block(const Gemm& g, const T* a, const T* b, T* c) {
  if (g.m == 0 || g.n == 0) return;
  run_block(*gemm_table().choose({g, gemm_dtype<T>(), true}).make, g, a, b, c);
}

template void gemm_block(const Gemm&, const float*, const float*, float*);
template void gemm_block(const Gemm&, const double*, const double*, double*);
template void gemm(const Gemm&, const float*, const float*, float*, int);
template void gemm(const Gemm&, const double*, const double*, double*, int);
template class PreparedGemm<float>;
template class PreparedGemm<double>;
template class PreparedGemm<uint8_t>;
template class PreparedGemm<int8_t>;
template class PreparedGemm<int16_t>;
template class PreparedGemm<int32_t>;
template class PreparedGemm<int64_t>;

}  // namespace poptorch::kernels
