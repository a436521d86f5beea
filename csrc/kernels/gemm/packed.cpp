#include "kernels/gemm/packed.h"

#include <cstdint>
#include <utility>

#include "support/memory/align.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {
namespace {

// Columns of a part when they are packed: whole vectors of each instruction set.
int64_t padded(int64_t columns) { return align_numbers<float>(columns); }

}  // namespace
}  // namespace poptorch::kernels

namespace poptorch::simd {

// The loops of one instruction set.
struct PackedFunctions {
  void (*pack)(const kernels::PackedGemm&, const kernels::PackedSource&, float* packed);
  void (*multiply)(const kernels::PackedGemm&, const float* a, int64_t lda, const float* packed,
                   float* c);
};

}  // namespace poptorch::simd

#define POPTORCH_SIMD_SOURCE "kernels/gemm/packed.inl"
#include "kernels/simd/each_isa.h"

namespace poptorch::kernels {
namespace {

const simd::PackedFunctions& functions() {
  return simd::choose(simd::base::packed_functions, simd::avx2::packed_functions,
                      simd::avx512::packed_functions);
}

}  // namespace

bool has_packed_gemm() {
  return is_on("packed_gemm") && simd::isa() != simd::Isa::base;
}

size_t packed_bytes(const PackedGemm& g) {
  return static_cast<size_t>(g.parts * g.k * padded(g.columns)) * sizeof(float);
}

void pack_weights(const PackedGemm& g, const PackedSource& from, float* packed) {
  functions().pack(g, from, packed);
}

void packed_gemm(const PackedGemm& g, const float* a, int64_t lda, const float* packed, float* c) {
  functions().multiply(g, a, lda, packed, c);
}

}  // namespace poptorch::kernels
