#include "kernels/simd/elementwise.h"
#include "support/cpu/half.h"
#include "support/mutant.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/binary.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const NamedLoop* binary_f32(std::string_view name) {
  const auto& table =
      choose(base::binary_functions, avx2::binary_functions, avx512::binary_functions);
  return needed(find(table, name));
}

}  // namespace poptorch::simd
