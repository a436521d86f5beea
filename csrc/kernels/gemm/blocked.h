// Products of f32 matrices by loops of our own, for processors that the BLAS was not written for:
// on an EPYC MKL reaches 0.5 to 0.85 of what the processor can do, these loops 0.8 to 0.9.
//
// A part of b is packed so that it stays in the second cache, a few rows of a are copied so that
// they stay in the first one, and a tile of sums stays in the registers.
#pragma once

#include <string_view>

#include "kernels/gemm/gemm.h"
#include "support/loading/shown.h"

namespace poptorch::kernels {

// Multiples at which blocks of c should begin: groups of rows and panels of columns are whole then.
constexpr int64_t blocked_mr = 12, blocked_nr = 32;
// The cost of cutting c, in multiplications for each number of b and of a that is read again: those
// of b have to be packed. Adjacent blocks share the rows of c: where it does not stay in the caches
// and threads write short pieces, each fetches the numbers that the other one is writing.
constexpr double blocked_row_cost = 16;
inline double blocked_column_cost(const Gemm& g) {
  constexpr int64_t cached = 1 << 18;  // numbers
  return g.m * g.n < cached ? 8 : 40;
}

// Whether the product is large enough for the loops, the processor has vectors for them, they are
// in use, and the switch `blocked_gemm` is on.
bool blocked_gemm_pays(const Gemm& g);

// As gemm, on the calling thread, which keeps half a MiB for it. An element's sum does not depend
// on where the block of c around it begins and ends: it is taken in parts of KC = 256 products,
// which are added in their order.
void blocked_gemm(const Gemm& g, const float* a, const float* b, float* c);

// What computes products: "loops", which are in use unless the processor is Intel's, or "library",
// the BLAS (support/settings/settings.h).
POPTORCH_SHOWN std::string_view gemm_by();

}  // namespace poptorch::kernels
