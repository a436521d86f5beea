#include "kernels/simd/convert.h"

#include "support/cpu/half.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/convert.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const ConvertTable& convert_table() {
  return choose(base::convert_functions, avx2::convert_functions, avx512::convert_functions);
}

}  // namespace poptorch::simd
