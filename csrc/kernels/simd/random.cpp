#include "kernels/simd/random.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/random.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const RandomTable& random_table() {
  return choose(base::random_functions, avx2::random_functions, avx512::random_functions);
}

}  // namespace poptorch::simd
