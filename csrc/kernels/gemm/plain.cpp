// Products by plain loops: of integers, and of floats where there is no BLAS.
#include <type_traits>

#include "kernels/gemm/algorithms.h"
#include "support/memory/thread_memory.h"

namespace poptorch::kernels {

constexpr int64_t plain_width = 64;  // columns summed at once

}  // namespace poptorch::kernels

#define POPTORCH_SIMD_SOURCE "kernels/gemm/plain.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {

namespace {

// Turning b pays for some rows; of long sums each is a vector's work. A megabyte at most.
bool turns(const Gemm& g) {
  constexpr int64_t least_rows = 4, deepest = 2048;
  return g.trans_b && g.m >= least_rows && g.k <= deepest;
}

}  // namespace

template <typename T>
void plain_block(const Gemm& g, const T* a, const T* b, T* c) {
  if constexpr (std::is_floating_point_v<T>) {
    // Other instruction sets would round a product and its addition in one step.
    simd::base::plain_products<T>(g, a, b, c, nullptr);
  } else {
    thread_local ThreadMemory memory;
    T* turned = turns(g) ? memory.numbers<T>(g.k * plain_width) : nullptr;
    simd::choose(simd::base::plain_products<T>, simd::avx2::plain_products<T>,
                 simd::avx512::plain_products<T>)(g, a, b, c, turned);
  }
}

template void plain_block(const Gemm&, const float*, const float*, float*);
template void plain_block(const Gemm&, const double*, const double*, double*);
template void plain_block(const Gemm&, const uint8_t*, const uint8_t*, uint8_t*);
template void plain_block(const Gemm&, const int8_t*, const int8_t*, int8_t*);
template void plain_block(const Gemm&, const int16_t*, const int16_t*, int16_t*);
template void plain_block(const Gemm&, const int32_t*, const int32_t*, int32_t*);
template void plain_block(const Gemm&, const int64_t*, const int64_t*, int64_t*);

}  // namespace poptorch::kernels
