#include "kernels/simd/elementwise.h"
#include "support/half.h"
#include "support/mutant.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/binary.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

std::span<const NamedLoop> binary_f32() {
  return choose(base::binary_functions, avx2::binary_functions, avx512::binary_functions);
}

}  // namespace poptorch::simd
