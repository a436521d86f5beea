#include "kernels/conv/depthwise/depthwise_loops.h"

#include "support/memory/align.h"

#define POPTORCH_SIMD_SOURCE "kernels/conv/depthwise/depthwise_loops.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const DepthwiseLoops& depthwise_loops(const DepthwiseWindow& window) {
  return choose(base::depthwise_loops_of(window), avx2::depthwise_loops_of(window),
                avx512::depthwise_loops_of(window));
}

}  // namespace poptorch::simd
