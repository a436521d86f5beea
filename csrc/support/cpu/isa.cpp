#include "support/cpu/isa.h"

#include <array>
#include <string>

#include "support/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace poptorch::simd {

namespace {

#ifdef POPTORCH_ONLY_ISA
constexpr std::array<Isa, 1> levels = {Isa::POPTORCH_ONLY_ISA};
#else
constexpr std::array<Isa, 4> levels = {Isa::base, Isa::avx2, Isa::avx512, Isa::amx};
#endif

#if defined(__x86_64__)
bool machine_has_amx() {
  constexpr unsigned tiles = 1u << 24, bfloat16 = 1u << 22;  // of leaf 7, edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & tiles) != 0 &&
         (edx & bfloat16) != 0;
}
#endif

bool machine_has(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  switch (isa) {
    case Isa::base: return true;
    case Isa::avx2: return avx2;
    case Isa::avx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::amx: return machine_has(Isa::avx512) && machine_has_amx();
  }
  return false;
#else
  return isa == Isa::base;
#endif
}

#if defined(__x86_64__)
// As the manufacturer counts its processors.
unsigned family() {
  unsigned version = 0, b, c, d;
  __get_cpuid(1, &version, &b, &c, &d);
  return (version >> 8 & 0xf) + (version >> 20 & 0xff);
}
#endif

}  // namespace

bool has_whole_avx512() {
#if defined(__x86_64__)
  static const bool has = machine_has(Isa::avx512) && (!__builtin_cpu_is("amd") || family() >= 26);
  return has;
#else
  return false;
#endif
}

const char* name_of(Isa isa) {
  constexpr std::array<const char*, 4> names = {"base", "avx2", "avx512", "amx"};
  return names[static_cast<size_t>(isa)];
}

std::vector<Isa> machine_levels() {
  std::vector<Isa> have;
  for (Isa level : levels) {
    if (machine_has(level)) have.push_back(level);
  }
  return have;
}

Isa parse_isa(std::string_view name) {
  std::string have;
  for (Isa level : machine_levels()) have += concat(have.empty() ? "" : ", ", name_of(level));
  for (Isa level : levels) {
    if (name != name_of(level)) continue;
    USER_CHECK(machine_has(level), "[POPTORCH_ISA] this machine has no ", name, "; it has ", have,
               ". Choose one of those.");
    return level;
  }
  throw_user_error(concat("[POPTORCH_ISA] \"", name, "\" is no instruction set; this machine has ",
                          have, ". Choose one of those."));
}

}  // namespace poptorch::simd
