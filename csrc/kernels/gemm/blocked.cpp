#include "kernels/gemm/blocked.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/gemm/packed.h"
#include "support/memory/align.h"
#include "support/memory/thread_memory.h"
#include "support/settings/settings.h"
#include "support/settings/switches.h"

namespace poptorch::simd {

// The loops of one instruction set, which need memory for so many numbers.
struct BlockedFunctions {
  void (*multiply)(const kernels::Gemm&, const float* a, const float* b, float* c, float* packed);
  int64_t packed_numbers;
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/gemm/blocked.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {

std::string_view gemm_by() { return settings().has_gemm_loops ? "loops" : "library"; }

bool blocked_gemm_pays(const Gemm& g) {
  // b is packed for these rows alone, and turned where its columns lie by themselves. An AMD's BLAS
  // uses AVX2, and for a few columns of a wide b neither vectors nor threads.
  const int64_t least_rows = simd::is_wide() ? 12 : g.trans_b ? 48 : 32;
  const int64_t least_columns = g.trans_b ? 5 : 2;
  return g.m >= least_rows && g.n >= least_columns && settings().has_gemm_loops &&
         simd::isa() != simd::Isa::base && is_on("blocked_gemm");
}

void blocked_gemm(const Gemm& g, const float* a, const float* b, float* c) {
  const simd::BlockedFunctions& functions =
      simd::choose(simd::base::blocked_functions, simd::avx2::blocked_functions,
                   simd::avx512::blocked_functions);
  thread_local ThreadMemory memory;
  functions.multiply(g, a, b, c, memory.numbers<float>(functions.packed_numbers));
}

}  // namespace poptorch::kernels
