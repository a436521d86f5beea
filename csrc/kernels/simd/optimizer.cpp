#include "kernels/simd/optimizer.h"

#include "support/cpu/half.h"
#include "support/mutant.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/optimizer.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const OptimizerTable& optimizer_table() {
  return choose(base::optimizer_functions, avx2::optimizer_functions, avx512::optimizer_functions);
}

}  // namespace poptorch::simd
