// Compiles POPTORCH_SIMD_SOURCE once for each instruction set, in the namespaces
// poptorch::simd::base, avx2 and avx512. No include guard: each family's .cpp includes this once.
//
// Standard headers come before the first `target`: what they define inline is shared with the rest
// of the program, and a copy made for AVX-512 could be the one that the linker keeps.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/simd/isa.h"

#define SIMD_WIDTH 4
namespace poptorch::simd::base {
#include "kernels/simd/vec.inl"
#include "kernels/simd/math.inl"
#include "kernels/simd/piecewise.inl"
#include POPTORCH_SIMD_SOURCE
}  // namespace poptorch::simd::base
#undef SIMD_WIDTH

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define SIMD_WIDTH 8
namespace poptorch::simd::avx2 {
#include "kernels/simd/vec.inl"
#include "kernels/simd/math.inl"
#include "kernels/simd/piecewise.inl"
#include POPTORCH_SIMD_SOURCE
}  // namespace poptorch::simd::avx2
#undef SIMD_WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#define SIMD_WIDTH 16
namespace poptorch::simd::avx512 {
#include "kernels/simd/vec.inl"
#include "kernels/simd/math.inl"
#include "kernels/simd/piecewise.inl"
#include POPTORCH_SIMD_SOURCE
}  // namespace poptorch::simd::avx512
#undef SIMD_WIDTH
#pragma GCC pop_options
