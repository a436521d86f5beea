#include "kernels/conv/depthwise_loops.h"

#define POPTORCH_SIMD_SOURCE "kernels/conv/depthwise_loops.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const DepthwiseLoops& depthwise_loops() {
  return choose(base::depthwise_functions, avx2::depthwise_functions, avx512::depthwise_functions);
}

}  // namespace poptorch::simd
