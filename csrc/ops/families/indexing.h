// What the rows and the kernels of indexing share.
#pragma once

#include <vector>

#include "ops/op_def.h"

namespace poptorch::ops {

// The attribute `index_dtype` of rows that make positions among so many entries: i32 or i64. A user
// error for any other dtype, or when there are more entries than kernels count in an i32.
ir::DType index_dtype(const InferInput& in, int64_t entries);

// A user error unless operand i is i32 or i64.
void check_index(const InferInput& in, size_t i);

// The attribute `reduce` of scatter_reduce.
enum class ScatterReduce { sum, prod, mean, amax, amin };

// A user error for another word.
ScatterReduce scatter_reduce_of(const InferInput& in);

// `self[i, :, j]`: index tensors for some dimensions of operand 0. They are broadcast together;
// their dimensions
// (`batch`) take the place of the indexed ones when those are neighbours, else they come first.
struct AdvancedIndex {
  std::vector<size_t> operands;  // of the index tensors
  ir::Dims dims;                 // the dimension that each of them indexes
  ir::Dims batch;
  ir::Dims sizes;        // of the result
  int64_t batch_at = 0;  // where the dimensions of `batch` stand in the result
  bool is_mask =
      false;  // one bool tensor for dims.size() dimensions; `batch` and `sizes` are empty
};

// Index tensors are the operands from `first` on, absent ones being whole dimensions.
AdvancedIndex advanced_index(const InferInput& in, size_t first, bool mask_allowed);

// The examples of fps: which rows of the points each of them has, and how many of them it takes. A
// user error unless the attributes `ptr` and `counts` fit operand 0.
struct Examples {
  ir::Dims ptr;     // example i has the rows ptr[i] to ptr[i + 1]
  ir::Dims counts;
};
Examples examples_of(const InferInput& in);

// Parts of the family: the rows of points (points.cpp) and of sorting (sorting.cpp).
std::vector<OpDef> point_ops();
std::vector<OpDef> sorting_ops();

}  // namespace poptorch::ops
