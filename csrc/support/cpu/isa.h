// Instruction sets that vector kernels are compiled for.
#pragma once

#include <string_view>
#include <vector>

namespace poptorch::simd {

// Each includes all before it. amx adds a unit for matrices; its vectors are those of avx512.
enum class Isa { base, avx2, avx512, amx };

const char* name_of(Isa isa);
// Levels this machine has, lowest first.
std::vector<Isa> machine_levels();
// Whether the machine multiplies 512 bits at once, not as two halves as AMD's did before family 26.
bool has_whole_avx512();

// The level that POPTORCH_ISA names. A user error when there is none, or one that the machine has
// not.
Isa parse_isa(std::string_view name);

}  // namespace poptorch::simd
