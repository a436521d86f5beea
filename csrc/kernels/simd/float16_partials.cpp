#include "kernels/simd/float16_partials.h"

#include "support/cpu/half.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/float16_partials.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const Float16PartialsTable& float16_partials_table() {
  return choose(base::float16_partials_functions, avx2::float16_partials_functions,
                avx512::float16_partials_functions);
}

}  // namespace poptorch::simd
