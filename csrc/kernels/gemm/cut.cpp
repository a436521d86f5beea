#include <algorithm>
#include <bit>

#include "kernels/gemm/algorithms.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {

namespace {

// BLAS libraries choose kernels, and the pieces in which they sum, by the size of a product. They
// choose the same for all blocks whose sides are this long, less what a cut at tiles takes: 240.
constexpr int64_t steady_side = 256;

bool is_steady(const Gemm& g) { return std::min(g.m, g.n) >= 2 * steady_side; }

// How many blocks at most. Where the bits follow from them they may not depend on the number of
// threads: parts of sums, and blocks of a BLAS, which might sum them in different orders.
int64_t most_blocks(const Gemm& g, const GemmMethod& method, bool splits, int threads) {
  constexpr int64_t large = int64_t{1} << 24, most = 8;  // costs little to cut from here on
  const int64_t work = work_of(g);
  if (splits && (method.is_even || is_deep(g))) return most;
  if (!splits && (method.is_even || is_steady(g))) {
    return std::min<int64_t>(threads, work / gemm_grain);
  }
  if (!splits && work < 2 * gemm_grain) return 1;
  // A power of two: three blocks would take two threads as long as four.
  const uint64_t blocks = std::bit_floor(static_cast<uint64_t>(work / large));
  return std::clamp<int64_t>(static_cast<int64_t>(blocks), 2, most);
}

// Each number of a is read and packed for a block's columns, each of b for its rows, and each part
// of a sum is written and read.
double cost_of(const Gemm& g, const GemmMethod& method, const Cut& cut) {
  constexpr double sum_cost = 64;
  const auto share = [](int64_t parts, int64_t n) {
    return static_cast<double>(parts) / static_cast<double>(std::max<int64_t>(n, 1));
  };
  const double sums = cut.depth == 1 ? 0 : sum_cost * share(cut.depth, g.k);
  return 1 + method.row_cost * share(cut.rows, g.m) +
         method.column_cost(g) * share(cut.columns, g.n) + sums;
}

struct Costed {
  Cut cut;
  double cost = -1;
};

// The cheapest cut into at most `parts`. Missing ones leave threads idle.
Costed cheapest(const Gemm& g, const GemmMethod& method, bool splits, int64_t parts) {
  Costed best;
  const bool stays_steady = !method.is_even && is_steady(g);
  const auto most = [&](int64_t n, int64_t tile) {
    return stays_steady ? n / steady_side : ceil_div(n, tile);
  };
  const auto try_cut = [&](const Cut& cut) {
    const double cost =
        cost_of(g, method, cut) * static_cast<double>(parts) / static_cast<double>(cut.count());
    if (best.cost < 0 || cost < best.cost) best = {cut, cost};
  };
  const int64_t deepest = splits ? std::min({parts, g.k, 1 + most_sums / (g.m * g.n)}) : 1;
  for (int64_t depth = splits ? 2 : 1; depth <= deepest; ++depth) {
    for (int64_t rows = 1; rows <= std::min(parts / depth, most(g.m, method.row_tile)); ++rows) {
      try_cut({rows, std::min(parts / depth / rows, most(g.n, method.column_tile)), depth});
    }
  }
  return best;
}

}  // namespace

int64_t work_of(const Gemm& g) {
  constexpr int64_t of_number = 16;
  return g.m * g.n * std::max(g.k, of_number);
}

bool is_deep(const Gemm& g) {
  constexpr int64_t few_sums = 1 << 15, least_depth = 4096;
  return g.m * g.n <= few_sums && g.k >= least_depth;
}

bool is_worth_splitting(const Gemm& g, const GemmMethod& method) {
  return is_deep(g) || (!method.is_even && !is_steady(g) && work_of(g) >= 2 * gemm_grain);
}

Cut choose_cut(const Gemm& g, const GemmMethod& method, bool splits, int threads) {
  const int64_t parts = most_blocks(g, method, splits, threads);
  return parts <= 1 ? Cut{} : cheapest(g, method, splits, parts).cut;
}

double cost_of_cut(const Gemm& g, const GemmMethod& method, bool splits) {
  // What is not split is measured by the parts that it would be split into.
  return cheapest(g, method, splits, most_blocks(g, method, true, 1)).cost;
}

}  // namespace poptorch::kernels
