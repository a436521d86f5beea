#include "kernels/gemm/bf16/bf16x3.h"

#include <algorithm>

#include "kernels/simd/isa.h"
#include "support/settings/switches.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace poptorch::kernels {

namespace {

// Linux lets a process use the tile registers only after a request.
bool may_use_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_bf16x3_gemm() {
  if (simd::isa() < simd::Isa::amx || !is_on("bf16x3_gemm")) return false;
  static const bool has_tiles = may_use_tiles();
  return has_tiles;
}

double bf16x3_cutting(const Gemm& g) {
  // The rows' parts are packed again for each block of columns.
  constexpr int64_t block_columns = 1024;
  const auto columns = static_cast<double>(std::clamp<int64_t>(g.n, 1, block_columns));
  const auto rows = static_cast<double>(std::max<int64_t>(g.m, 1));
  return bf16x3_number_cost * (1 / columns + 1 / rows);
}

bool bf16x3_gemm_pays(const Gemm& g) {
  // Each element that is cut into parts must be multiplied often, and each sum be long enough to
  // be worth its way through the tile registers.
  constexpr int64_t least_side = 64, least_depth = 128, least_work = int64_t{1} << 21;
  return std::min(g.m, g.n) >= least_side && g.k >= least_depth &&
         g.m * g.n * g.k >= least_work && has_bf16x3_gemm();
}

}  // namespace poptorch::kernels
