#include "kernels/gemm/small.h"

#include "kernels/simd/convert.h"
#include "support/cpu/half.h"
#include "support/settings/switches.h"

#define POPTORCH_SIMD_SOURCE "kernels/gemm/small.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {

namespace {

bool has_loops_for(const Gemm& g, int64_t least_side) {
  return std::min(g.m, g.n) >= least_side && g.k <= small::most_depth &&
         simd::isa() != simd::Isa::base && is_on("small_gemm");
}

}  // namespace

bool small_gemm_pays(const Gemm& g) {
  constexpr int64_t least_side = 4, most_work = gemm_grain;
  return has_loops_for(g, least_side) && g.m * g.n * g.k <= most_work;
}

bool thin_gemm_pays(const Gemm& g) {
  constexpr int64_t least_columns = 16, least_work = 1 << 12;
  const bool is_wide = simd::is_wide();
  const bool has_few_rows = g.m <= (is_wide ? 32 : g.trans_b ? 0 : 16);
  const bool has_few_columns = !g.trans_b && g.n < least_columns;
  return has_loops_for(g, g.trans_b ? 4 : 2) && g.m * g.n * g.k >= least_work &&
         settings().has_gemm_loops && (has_few_rows || has_few_columns);
}

void small_gemm(const Gemm& g, const float* a, const float* b, float* c) {
  simd::choose(simd::base::small_gemm, simd::avx2::small_gemm, simd::avx512::small_gemm)(g, a, b,
                                                                                         c);
}

namespace small {

const Float16Products& float16_products(ir::DType dtype) {
  if (dtype == ir::DType::f16) {
    return simd::choose(simd::base::f16_products, simd::avx2::f16_products,
                        simd::avx512::f16_products);
  }
  return simd::choose(simd::base::bf16_products, simd::avx2::bf16_products,
                      simd::avx512::bf16_products);
}

}  // namespace small

}  // namespace poptorch::kernels
