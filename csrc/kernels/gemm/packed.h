// Products of f32 rows with weights that many products share. The weights are packed once, and each
// number once: a BLAS takes the memory of its largest blocks and makes calls of a few rows slow.
//
// The columns of the weights are in equal parts, as the gates of a recurrent layer are. A part is
// packed as panels of two vectors of columns; the last panel may have one vector. A panel has all
// its numbers of depth 0, then of depth 1, and so on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace poptorch::kernels {

struct PackedGemm {
  int64_t m, k;            // the product is [m, parts * columns], sums of k products
  int64_t parts, columns;  // the columns are in `parts` runs of `columns`
};

// Whether there is an instruction set to do it with, and the switch `packed_gemm` is on.
bool has_packed_gemm();

// Memory for the packed weights: begins on a cache line.
size_t packed_bytes(const PackedGemm& g);

// Where part i of the weights lies: `next` numbers from one part to the next. With `by_column` a
// column is a row in memory, `stride` numbers from the next one; else the numbers of a depth are.
struct PackedSource {
  const float* weights;
  int64_t next, stride;
  bool by_column;
};
void pack_weights(const PackedGemm& g, const PackedSource& from, float* packed);

// c = a * weights on the calling thread; both by rows, `lda` and parts * columns numbers apart.
// A sum is taken in parts of KC = 256 products, which are added in their order.
void packed_gemm(const PackedGemm& g, const float* a, int64_t lda, const float* packed, float* c);

}  // namespace poptorch::kernels
