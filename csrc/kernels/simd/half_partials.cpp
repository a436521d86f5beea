#include "kernels/simd/half_partials.h"

#include "support/half.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/half_partials.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const HalfPartialsTable& half_partials_table() {
  return choose(base::half_partials_functions, avx2::half_partials_functions,
                avx512::half_partials_functions);
}

}  // namespace poptorch::simd
