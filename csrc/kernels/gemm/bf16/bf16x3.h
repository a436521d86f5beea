// Products of f32 matrices on a unit that multiplies bfloat16 matrices (AMX) many times faster than
// the vector units multiply f32.
//
// A number is cut into three bfloat16 parts, x = high + middle + low, which is exact: 8 + 8 + 8
// bits. Of the nine products of parts of x and y the six largest are summed, in f32; the other
// three are about 2^-25 |x y|, half of what rounding the exact product to f32 costs. Numbers that
// have no such parts (2^127 and above, infinities, NaN) send their block to the BLAS.
#pragma once

#include "kernels/gemm/gemm.h"
#include "support/loading/shown.h"

namespace poptorch::kernels {

// Blocks of c that begin at multiples of this are computed alike, wherever c is cut.
constexpr int64_t bf16x3_side = 32;

// Multiplications in the time in which a number is cut: 4 bytes are read and 6 written. Packing
// alone, of the loops for f32, takes 64 for the 8 bytes that it moves.
constexpr double bf16x3_number_cost = 64.0 / 8 * 10;

// Whether the machine has the unit, the system lets the process use it, and the switch
// `bf16x3_gemm` is on.
POPTORCH_SHOWN bool has_bf16x3_gemm();

// Whether the product is large enough to be worth cutting its operands into parts.
bool bf16x3_gemm_pays(const Gemm& g);

// What cutting the operands into parts takes, for each multiplication of the product, in units of
// one by loops at full speed.
double bf16x3_cutting(const Gemm& g);

// As gemm, on the calling thread.
void bf16x3_gemm(const Gemm& g, const float* a, const float* b, float* c);

}  // namespace poptorch::kernels
