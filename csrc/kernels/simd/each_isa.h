// Compiles POPTORCH_SIMD_SOURCE once for each instruction set, in the namespaces
// poptorch::simd::base, avx2 and avx512. No include guard: each family's .cpp includes this once.
//
// Standard headers come before the first `target`: what they define inline is shared with the rest
// of the program, and a copy made for AVX-512 could be the one that the linker keeps.
//
// In a build for one level (setup.py) it compiles that one, and the other names stand for it.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/simd/isa.h"

#if !defined(POPTORCH_ONLY_WIDTH) || POPTORCH_ONLY_WIDTH == 4
#define SIMD_WIDTH 4
namespace poptorch::simd::base {
#include "kernels/simd/vec/vec.inl"
#include "kernels/simd/vec/math.inl"
#include "kernels/simd/vec/piecewise.inl"
#include POPTORCH_SIMD_SOURCE
}  // namespace poptorch::simd::base
#undef SIMD_WIDTH
#endif

#if !defined(POPTORCH_ONLY_WIDTH) || POPTORCH_ONLY_WIDTH == 8
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define SIMD_WIDTH 8
namespace poptorch::simd::avx2 {
#include "kernels/simd/vec/vec.inl"
#include "kernels/simd/vec/math.inl"
#include "kernels/simd/vec/piecewise.inl"
#include POPTORCH_SIMD_SOURCE
}  // namespace poptorch::simd::avx2
#undef SIMD_WIDTH
#pragma GCC pop_options
#endif

#if !defined(POPTORCH_ONLY_WIDTH) || POPTORCH_ONLY_WIDTH == 16
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#define SIMD_WIDTH 16
namespace poptorch::simd::avx512 {
#include "kernels/simd/vec/vec.inl"
#include "kernels/simd/vec/math.inl"
#include "kernels/simd/vec/piecewise.inl"
#include POPTORCH_SIMD_SOURCE
}  // namespace poptorch::simd::avx512
#undef SIMD_WIDTH
#pragma GCC pop_options
#endif

#ifdef POPTORCH_ONLY_WIDTH
namespace poptorch::simd {
#if POPTORCH_ONLY_WIDTH != 4
namespace base = POPTORCH_ONLY_TABLE;
#endif
#if POPTORCH_ONLY_WIDTH != 8
namespace avx2 = POPTORCH_ONLY_TABLE;
#endif
#if POPTORCH_ONLY_WIDTH != 16
namespace avx512 = POPTORCH_ONLY_TABLE;
#endif
}  // namespace poptorch::simd
#endif
