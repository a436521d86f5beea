// The instruction set that vector kernels use.
#pragma once

#include "support/settings/settings.h"

namespace poptorch::simd {

// The level in use: that of the present settings.
#ifdef POPTORCH_ONLY_ISA
constexpr Isa isa() { return Isa::POPTORCH_ONLY_ISA; }
#else
inline Isa isa() { return settings().isa; }
#endif

// Whether its vectors are twice as wide as those of AVX2, and are multiplied at once.
inline bool is_wide() { return isa() >= Isa::avx512 && has_whole_avx512(); }

// The table of the level in use.
template <typename Table>
const Table& choose(const Table& base, const Table& avx2, const Table& avx512) {
  switch (isa()) {
    case Isa::base: return base;
    case Isa::avx2: return avx2;
    case Isa::avx512:
    case Isa::amx: return avx512;
  }
  return base;
}

}  // namespace poptorch::simd
