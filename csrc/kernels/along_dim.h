// A tensor seen along one of its dimensions.
#pragma once

#include "ops/families/reduction.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// A row-major tensor as [outer, n, inner], n being the entries of a dimension.
struct AlongDim {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t dim = -1;  // -1: all elements are one line

  // By the attribute `dim` of the call; absent or `none`: along all elements.
  AlongDim(const ops::Call& call, const ir::Type& x) : dim(ops::single_dim({call.op}, x)) {
    if (dim < 0) n = x.numel();
    for (int64_t d = 0; dim >= 0 && d < x.rank(); ++d) {
      (d < dim ? outer : d == dim ? n : inner) *= x.sizes[d];
    }
  }
};

}  // namespace poptorch::kernels
