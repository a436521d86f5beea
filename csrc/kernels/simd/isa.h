// The instruction set that vector kernels use: the best one of the machine, or the one that
// POPTORCH_ISA names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace poptorch::simd {

enum class Isa { base, avx2, avx512 };

const char* name_of(Isa isa);
bool machine_has(Isa isa);
// Levels this machine has, lowest first.
std::vector<Isa> machine_levels();

// The level in use. The first call reads POPTORCH_ISA; a user error when it names no level, or one
// that the machine lacks.
Isa isa();
// For tests: kernels prepared from now on use this level. The same user errors.
void set_isa(std::string_view name);

// The table of the level in use.
template <typename Table>
const Table& choose(const Table& base, const Table& avx2, const Table& avx512) {
  switch (isa()) {
    case Isa::base: return base;
    case Isa::avx2: return avx2;
    case Isa::avx512: return avx512;
  }
  return base;
}

}  // namespace poptorch::simd
