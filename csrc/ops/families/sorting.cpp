// Rows that put entries in order.
#include <algorithm>
#include <cmath>

#include "ops/families/indexing.h"
#include "ops/families/reduction.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

Types infer_topk(const InferInput& in) {
  const Type& x = in.operand(0);
  const int64_t dim = single_dim(in, x), k = in.attrs().get_int(ir::attr::k);
  const int64_t size = x.rank() == 0 ? 1 : x.sizes[dim];
  USER_CHECK(k >= 0 && k <= size, "[topk] k is ", k, ", dimension ", dim, " of ", x.text(), " has ",
             size, " entries. Use a k of 0 to ", size, ".");
  Dims sizes = x.sizes;
  if (!sizes.empty()) sizes[dim] = k;
  return {{x.dtype, sizes, {}}, {index_dtype(in, size), sizes, {}}};
}

Types infer_sort(const InferInput& in) {
  const Type& x = in.operand(0);
  const int64_t dim = single_dim(in, x), size = x.rank() == 0 ? 1 : x.sizes[dim];
  return {{x.dtype, x.sizes, {}}, {index_dtype(in, size), x.sizes, {}}};
}

// Comparisons when the `k` first of n are found by halving: n log2 k.
double sorting_flops(const WorkInput& in, double k) {
  return if_float(in, numel(in.operand(0)) * std::ceil(std::log2(std::max(k, 2.0))));
}

double topk_flops(const WorkInput& in) {
  return sorting_flops(in, static_cast<double>(in.attrs().get_int(ir::attr::k)));
}

double sort_flops(const WorkInput& in) {
  const Type& x = in.operand(0);
  return sorting_flops(in, x.rank() == 0 ? 1 : static_cast<double>(x.sizes[single_dim(in, x)]));
}

const AttrDef last_dim_attr = {"dim", -1};
const AttrDef index_dtype_attr = {"index_dtype", DType::i32};

}  // namespace

std::vector<OpDef> sorting_ops() {
  return {
      {.name = "topk",
       .aten = {"aten::topk"},
       .doc = "The k largest (or smallest) entries of `dim` and their positions, always sorted; "
              "NaN counts as largest, of equal entries the first ones are taken.",
       .operands = {"self"},
       .results = {"values", "indices"},
       .attrs =
           {{"k", 1, true}, last_dim_attr, {"largest", true}, {"sorted", true}, index_dtype_attr},
       .infer = infer_topk,
       .flops = topk_flops},
      {.name = "sort",
       .aten = {"aten::sort", "aten::sort.stable"},
       .doc = "The entries of `dim` in order, and their positions; always stable, NaN last (first "
              "when descending).",
       .operands = {"self"},
       .results = {"values", "indices"},
       .attrs = {{"stable", {}}, last_dim_attr, {"descending", false}, index_dtype_attr},
       .infer = infer_sort,
       .flops = sort_flops},
  };
}

}  // namespace poptorch::ops
