// Windows: the strided part of a tensor that slice, select and diagonal name.
#include <algorithm>

#include "ops/families/shape.h"
#include "support/ceil_div.h"
#include "support/error.h"

namespace poptorch::ops {

Dims ints_of(const ir::Attrs& attrs, ir::AttrName name) {
  const ir::Attr* attr = attrs.find(name);
  if (attr == nullptr || attr->is_none()) return {};
  if (const auto* one = std::get_if<int64_t>(&attr->value)) return {*one};
  return attrs.get_ints(name);
}

Dims wrap_dims(const InferInput& in, const Dims& dims, int64_t rank) {
  Dims wrapped;
  for (int64_t dim : dims) {
    const int64_t d = wrap_dim(in, dim, rank);
    USER_CHECK(std::find(wrapped.begin(), wrapped.end(), d) == wrapped.end(), "[", in.op.name,
               "] dimension ", d, " is named twice in ", ir::Attr(dims).text(),
               ". Name each dimension once.");
    wrapped.push_back(d);
  }
  return wrapped;
}

Window slice_window(const InferInput& in, const Dims& sizes, const Dims& strides) {
  const int64_t rank = static_cast<int64_t>(sizes.size());
  USER_CHECK(rank > 0, "[", in.op.name,
             "] a tensor without dimensions cannot be sliced. "
             "Give it at least one dimension.");
  const int64_t dim = wrap_dim(in, in.attrs().get_int(ir::attr::dim, 0), rank);
  const int64_t step = in.attrs().get_int(ir::attr::step, 1);
  USER_CHECK(step > 0, "[", in.op.name, "] the step is ", step,
             ", it must be at least 1. Use flip for the reverse order.");
  const int64_t size = sizes[dim];
  const auto clamp = [size](int64_t v) {
    return std::clamp<int64_t>(v < 0 ? v + size : v, 0, size);
  };
  const int64_t start = clamp(in.attrs().maybe_int(ir::attr::start).value_or(0));
  const int64_t end = clamp(in.attrs().maybe_int(ir::attr::end).value_or(size));
  Window window{start * strides[dim], sizes, strides};
  window.sizes[dim] = end > start ? ceil_div(end - start, step) : 0;
  window.strides[dim] = strides[dim] * step;
  return window;
}

Window diagonal_window(const InferInput& in, const Dims& sizes, const Dims& strides) {
  const int64_t rank = static_cast<int64_t>(sizes.size());
  USER_CHECK(rank >= 2, "[", in.op.name, "] a diagonal needs 2 dimensions, the tensor has ", rank,
             ". Give a matrix or a batch of matrices.");
  const int64_t dim1 = wrap_dim(in, in.attrs().get_int(ir::attr::dim1, 0), rank);
  const int64_t dim2 = wrap_dim(in, in.attrs().get_int(ir::attr::dim2, 1), rank);
  USER_CHECK(dim1 != dim2, "[", in.op.name, "] dim1 and dim2 are both ", dim1,
             ". Name two different dimensions.");
  const int64_t offset = in.attrs().get_int(ir::attr::offset, 0);
  const int64_t rows = sizes[dim1] + std::min<int64_t>(offset, 0);
  const int64_t columns = sizes[dim2] - std::max<int64_t>(offset, 0);
  Window window;
  window.offset = offset >= 0 ? offset * strides[dim2] : -offset * strides[dim1];
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim1 || d == dim2) continue;
    window.sizes.push_back(sizes[d]);
    window.strides.push_back(strides[d]);
  }
  window.sizes.push_back(std::max<int64_t>(std::min(rows, columns), 0));
  window.strides.push_back(strides[dim1] + strides[dim2]);
  return window;
}

Dims reshaped_sizes(const InferInput& in, const ir::Type& x, Dims sizes) {
  int64_t known = 1;
  int64_t* open = nullptr;
  const std::string asked = ir::Attr(sizes).text();
  for (int64_t& size : sizes) {
    if (size == -1 && open == nullptr) {
      open = &size;
      continue;
    }
    USER_CHECK(size >= 0, "[", in.op.name, "] cannot use the sizes ", asked,
               ": at most one may be -1 and none smaller. Correct the sizes.");
    known *= size;
  }
  const int64_t numel = x.numel();
  if (open != nullptr && known > 0 && numel % known == 0) {
    *open = numel / known;
    known = numel;
  }
  USER_CHECK(known == numel && (open == nullptr || *open >= 0), "[", in.op.name, "] ", x.text(),
             " has ", numel, " elements, the sizes ", asked,
             " do not make as many. Give sizes with an equal product.");
  return sizes;
}

}  // namespace poptorch::ops
