#include "kernels/simd/elementwise.h"
#include "support/cpu/half.h"
#include "support/mutant.h"

#define POPTORCH_SIMD_SOURCE "kernels/simd/unary.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::simd {

const NamedLoop* unary_f32(std::string_view name) {
  const auto& table =
      choose(base::unary_functions, avx2::unary_functions, avx512::unary_functions);
  return needed(find(table, name));
}

}  // namespace poptorch::simd
