#include "kernels/reduction/loops.h"

#define POPTORCH_SIMD_SOURCE "kernels/reduction/loops.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const ReduceLoops& reduce_loops() {
  return choose(base::reduce_functions, avx2::reduce_functions, avx512::reduce_functions);
}

}  // namespace poptorch::simd
