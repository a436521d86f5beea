#include "kernels/gemm/small.h"

#include "kernels/simd/convert.h"
#include "support/half.h"
#include "support/switches.h"

#define POPTORCH_SIMD_SOURCE "kernels/gemm/small.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {

bool small_gemm_pays(const Gemm& g) {
  constexpr int64_t least_side = 4, most_work = gemm_grain;
  return std::min(g.m, g.n) >= least_side && g.k <= small::most_depth &&
         g.m * g.n * g.k <= most_work && simd::isa() != simd::Isa::base && is_on("small_gemm");
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
