#include "kernels/gemm/bf16x3.h"

#include <algorithm>

#include "kernels/simd/isa.h"
#include "support/switches.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace poptorch::kernels {

namespace {

// Linux lets a process use the tile registers only after a request.
bool machine_has_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr unsigned tiles = 1u << 24, bfloat16 = 1u << 22;  // of leaf 7, edx
  constexpr long request_permission = 0x1023, tile_data = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & tiles) == 0 || (edx & bfloat16) == 0) return false;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_bf16x3_gemm() {
  if (simd::isa() != simd::Isa::avx512 || !is_on("bf16x3_gemm")) return false;
  static const bool has_tiles = machine_has_tiles();
  return has_tiles;
}

bool bf16x3_gemm_pays(const Gemm& g) {
  // Each element that is cut into parts must be multiplied often, and each sum be long enough to
  // be worth its way through the tile registers.
  constexpr int64_t least_side = 64, least_depth = 128, least_work = int64_t{1} << 21;
  return std::min(g.m, g.n) >= least_side && g.k >= least_depth &&
         g.m * g.n * g.k >= least_work && has_bf16x3_gemm();
}

}  // namespace poptorch::kernels
