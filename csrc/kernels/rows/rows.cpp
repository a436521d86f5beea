#include "kernels/rows/rows.h"

#include "support/mutant.h"

#define POPTORCH_SIMD_SOURCE "kernels/rows/rows.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {

template <>
const Rows<float>& rows() {
  return simd::choose(simd::base::row_loops::table, simd::avx2::row_loops::table,
                      simd::avx512::row_loops::table);
}

}  // namespace poptorch::kernels
