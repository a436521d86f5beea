// Half precision for kernels that are written for f32: operands are widened in scratch, the f32
// kernel runs, results are rounded back. Kernel authors need not know.
#pragma once

#include "ops/kernel.h"

namespace poptorch::ops {

// Whether an operand or result of the call is f16 or bf16.
bool uses_half(const Call& call);

Prepared prepare_widened(const Call& call, Prepare inner);

// Arrays of n elements; both 16-bit formats round to nearest even.
void widen(ir::DType from, const void* in, float* out, int64_t n);
void narrow(ir::DType to, const float* in, void* out, int64_t n);

}  // namespace poptorch::ops
