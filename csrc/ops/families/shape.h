// What the rows and the kernels of data movement share: which elements go where.
#pragma once

#include <string_view>

#include "ops/op_def.h"

namespace poptorch::ops {

// The integers of an attribute: a list, one integer, or none when the attribute is absent or
// `none`.
ir::Dims ints_of(const ir::Attrs& attrs, ir::AttrName name);

// Like wrap_dim for each; a dimension named twice is a user error.
ir::Dims wrap_dims(const InferInput& in, const ir::Dims& dims, int64_t rank);

// The part of a tensor that a slice or a diagonal covers, as a strided view: offset and strides in
// elements of a tensor with strides `strides`.
struct Window {
  int64_t offset = 0;
  ir::Dims sizes;
  ir::Dims strides;
};

// By the attributes dim, start, end, step.
Window slice_window(const InferInput& in, const ir::Dims& sizes, const ir::Dims& strides);
// By the attributes offset, dim1, dim2; the two dimensions become a last one.
Window diagonal_window(const InferInput& in, const ir::Dims& sizes, const ir::Dims& strides);

// Sizes with -1 filled in.
ir::Dims reshaped_sizes(const InferInput& in, const ir::Type& x, ir::Dims sizes);

}  // namespace poptorch::ops
