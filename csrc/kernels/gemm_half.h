// Products of bfloat16 matrices on a unit for them, many times faster than f32: summed in f32, each
// result rounded once, as by widened operands.
#pragma once

#include <cstddef>

#include "kernels/gemm.h"

namespace poptorch::kernels {

// Whether this CPU computes with bfloat16 itself, and the switch `half_products` is on.
bool computes_bf16();
// The same, and the BLAS that torch has loaded multiplies them.
bool has_bf16_gemm();

// As gemm. Where c is cut depends on its sizes alone.
void gemm_bf16(const Gemm& g, const uint16_t* a, const uint16_t* b, uint16_t* c, std::byte* scratch,
               int threads);
size_t bf16_gemm_scratch(const Gemm& g, int threads);

}  // namespace poptorch::kernels
