#include "support/cpu/bf16_unit.h"

#include "support/settings/settings.h"
#include "support/settings/switches.h"

namespace poptorch {

bool computes_bf16() {
#if defined(__x86_64__)
  return settings().isa >= simd::Isa::avx512 && __builtin_cpu_supports("avx512bf16") &&
         is_on("bf16_unit");
#else
  return false;
#endif
}

}  // namespace poptorch
