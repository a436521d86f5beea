// Products of small f32 matrices, for which a BLAS call takes longer than its arithmetic.
//
// Numbers of one side are broadcast, and multiply vectors of the other side along the columns of c.
// Where b lies transposed in memory, as the weights of a layer do, c is computed transposed, from
// vectors along the rows of a, and turned on the way out.
#pragma once

#include "ir/dtype.h"
#include "kernels/gemm/gemm.h"

namespace poptorch::kernels {

// Whether the product is of that kind, and the switch `small_gemm` is on.
bool small_gemm_pays(const Gemm& g);
// The same of one that may be large, but has so few rows or columns that nothing is worth packing,
// for processors that the BLAS was not written for (gemm_by).
bool thin_gemm_pays(const Gemm& g);

// As gemm, on the calling thread. Each sum is taken in the order of k.
void small_gemm(const Gemm& g, const float* a, const float* b, float* c);

namespace small {

// The longest sum: columns of `width` rows of a, packed, must lie in the first cache.
constexpr int64_t most_depth = 512;

// Products whose result is rounded to 16 bits when it is stored, a upcast.
struct Float16Products {
  void (*of_f32)(const Gemm& g, const float* a, const float* b, uint16_t* c);
  // b of 16-bit floats, not transposed, is upcast where it is read: again for each 8 rows of c.
  void (*of_float16)(const Gemm& g, const float* a, const uint16_t* b, uint16_t* c);
};
const Float16Products& float16_products(ir::DType dtype);

}  // namespace small

}  // namespace poptorch::kernels
