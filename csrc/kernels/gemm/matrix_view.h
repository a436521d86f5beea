// Tensors as batches of matrices for `gemm`: how the last two dimensions lie, and where each matrix
// begins.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace poptorch::kernels {

struct MatrixLayout {
  bool transposed;
  int64_t leading;

  // Elements from the first entry to that of row `row`.
  int64_t row_offset(int64_t row) const { return transposed ? row : row * leading; }
};

// The type must be one that ops::Strided::gemm admits.
MatrixLayout layout_of(const ir::Type& type);

// Strides of the type's dimensions before the last two, broadcast to sizes `leading`.
ir::Dims batch_strides(const ir::Type& type, const ir::Dims& leading);

// Offsets of the entries of another dimension, inside of those at `offsets`.
std::vector<int64_t> spread(const std::vector<int64_t>& offsets, int64_t size, int64_t stride);

// Offset in elements of each matrix of a batch of sizes `leading`, to which the type's own leading
// dimensions are broadcast.
std::vector<int64_t> batch_offsets(const ir::Type& type, const ir::Dims& leading);

}  // namespace poptorch::kernels
