#include "kernels/pool/loops.h"

#define POPTORCH_SIMD_SOURCE "kernels/pool/loops.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const PoolLoops& pool_loops() {
  return choose(base::pool_functions, avx2::pool_functions, avx512::pool_functions);
}

}  // namespace poptorch::simd
