#include "kernels/rows/rows.h"

#include "kernels/rows/batch_norm.h"
#include "support/cpu/half.h"
#include "support/mutant.h"

#define POPTORCH_SIMD_SOURCE "kernels/rows/rows.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {

template <>
const Rows<float>& rows() {
  return simd::choose(simd::base::row_loops::table, simd::avx2::row_loops::table,
                      simd::avx512::row_loops::table);
}

template <typename E>
const BatchNormLoops<E>& batch_norm_loops() {
  return simd::choose(simd::base::row_loops::batch_norm_table<E>,
                      simd::avx2::row_loops::batch_norm_table<E>,
                      simd::avx512::row_loops::batch_norm_table<E>);
}
template const BatchNormLoops<float>& batch_norm_loops();
template const BatchNormLoops<simd::F16>& batch_norm_loops();
template const BatchNormLoops<simd::BF16>& batch_norm_loops();

}  // namespace poptorch::kernels
