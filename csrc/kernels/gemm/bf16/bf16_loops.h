// Products of bfloat16 matrices, summed in f32, by loops of our own on the instruction of AVX-512
// that multiplies pairs (AVX512-BF16): for processors that the BLAS was not written for. They are
// those of gemm/blocked.h, with two numbers of an operand in a word.
#pragma once

#include <cstdint>

#include "kernels/gemm/gemm.h"

namespace poptorch::kernels {

// Whether they are in use: where computes_bf16(), but not where the BLAS is. Products of all sizes
// gain by them.
bool bf16_loops_pay();

// Where computes_bf16(): as gemm, but for the types, on the calling thread, which keeps half a MiB
// for it; without scale, bias and relu. An element's sum is taken in parts of 512 products, which
// are added in their order; denormals count as 0.
void bf16_loops_gemm(const Gemm& g, const uint16_t* a, const uint16_t* b, float* c);

}  // namespace poptorch::kernels
