// Rows that make one number of many: sums, extremes, variances, and running sums.
#include "ops/families/reduction.h"

#include "ops/families/indexing.h"
#include "ops/families/shape.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

Dims reduced_sizes(const InferInput& in, const Type& x, const std::vector<bool>& reduced) {
  const bool keep = in.attrs().get_bool(ir::attr::keepdim, false);
  Dims sizes;
  for (size_t d = 0; d < x.sizes.size(); ++d) {
    if (!reduced[d]) sizes.push_back(x.sizes[d]);
    if (reduced[d] && keep) sizes.push_back(1);
  }
  return sizes;
}

// The attribute `dtype` where it is given; else floats stay, and integers and bools become i32 (i64
// stays).
DType sum_dtype(const InferInput& in) {
  const ir::Attr* attr = in.attrs().find(ir::attr::dtype);
  if (attr != nullptr && !attr->is_none()) return in.attrs().get_dtype(ir::attr::dtype);
  const DType dtype = in.operand(0).dtype;
  if (is_float(dtype) || dtype == DType::i64) return dtype;
  return DType::i32;
}

Types infer_sum(const InferInput& in) {
  const Type& x = in.operand(0);
  return {{sum_dtype(in), reduced_sizes(in, x, reduced_dims(in, x)), {}}};
}

void check_float(const InferInput& in, DType dtype) {
  USER_CHECK(is_float(dtype), "[", in.op.name, "] the result would be ", name_of(dtype), " for ",
             in.operand(0).text(), ", it must be a float. Convert the operand to a float dtype.");
}

Types infer_mean(const InferInput& in) {
  const ir::Attr* attr = in.attrs().find(ir::attr::dtype);
  const bool given = attr != nullptr && !attr->is_none();
  check_float(in, given ? in.attrs().get_dtype(ir::attr::dtype) : in.operand(0).dtype);
  return infer_sum(in);
}

// Extremes of nothing do not exist.
void check_entries(const InferInput& in, const Type& x, const std::vector<bool>& reduced) {
  for (size_t d = 0; d < reduced.size(); ++d) {
    USER_CHECK(!reduced[d] || x.sizes[d] > 0, "[", in.op.name, "] dimension ", d, " of ", x.text(),
               " has no entries, so there is no result. Reduce dimensions with at least 1 entry.");
  }
}

Types infer_extreme(const InferInput& in) {
  const Type& x = in.operand(0);
  const std::vector<bool> reduced = reduced_dims(in, x);
  check_entries(in, x, reduced);
  return {{x.dtype, reduced_sizes(in, x, reduced), {}}};
}

Types infer_truth(const InferInput& in) {
  const Type& x = in.operand(0);
  return {{DType::boolean, reduced_sizes(in, x, reduced_dims(in, x)), {}}};
}

// How many entries become one.
int64_t reduced_entries(const InferInput& in) {
  const Type& x = in.operand(0);
  const std::vector<bool> reduced = reduced_dims(in, x);
  int64_t entries = 1;
  for (size_t d = 0; d < reduced.size(); ++d) entries *= reduced[d] ? x.sizes[d] : 1;
  return entries;
}

Types infer_arg_extreme(const InferInput& in) {
  Types types = infer_extreme(in);
  types[0].dtype = index_dtype(in, reduced_entries(in));
  return types;
}

Types infer_extreme_of_dim(const InferInput& in) {
  Types types = infer_extreme(in);
  types.push_back({index_dtype(in, reduced_entries(in)), types[0].sizes, {}});
  return types;
}

Types infer_float(const InferInput& in) {
  const Type& x = in.operand(0);
  check_float(in, x.dtype);
  return {{x.dtype, reduced_sizes(in, x, reduced_dims(in, x)), {}}};
}

Types infer_running(const InferInput& in) {
  const Type& x = in.operand(0);
  single_dim(in, x);
  return {{sum_dtype(in), x.sizes, {}}};
}

const AttrDef dim_attr = {"dim", {}};
const AttrDef keep_attr = {"keepdim", false};
const AttrDef dtype_attr = {"dtype", {}};
const AttrDef index_dtype_attr = {"index_dtype", DType::i32};
const AttrDef must_dim_attr = {"dim", 0, true};

// All of these take strided operands and have the operand `self`. `flops`: one for each entry that
// is read, unless it says more.
OpDef row(std::string name, std::vector<std::string> aten, std::string doc,
          std::vector<AttrDef> attrs, Infer infer, Count flops = flops_of_operand<>) {
  return {.name = std::move(name),
          .aten = std::move(aten),
          .doc = std::move(doc),
          .operands = {"self"},
          .attrs = std::move(attrs),
          .infer = infer,
          .flops = flops,
          .strided = Strided::all};
}

std::vector<OpDef> one_result_ops() {
  return {
      row("sum", {"aten::sum", "aten::sum.dim_IntList"},
          "Sum over `dim` (none: all). Integers and bools give i32, i64 gives i64.",
          {dim_attr, keep_attr, dtype_attr}, infer_sum),
      row("mean", {"aten::mean", "aten::mean.dim"}, "Mean over `dim` (none: all); NaN of nothing.",
          {dim_attr, keep_attr, dtype_attr}, infer_mean),
      row("prod", {"aten::prod", "aten::prod.dim_int"}, "Product over `dim` (none: all).",
          {dim_attr, keep_attr, dtype_attr}, infer_sum),
      row("amax", {"aten::amax", "aten::max"}, "Largest entry over `dim` (none: all), or NaN.",
          {dim_attr, keep_attr}, infer_extreme),
      row("amin", {"aten::amin", "aten::min"}, "Smallest entry over `dim` (none: all), or NaN.",
          {dim_attr, keep_attr}, infer_extreme),
      row("logsumexp", {"aten::logsumexp"},
          "Logarithm of the sum of e^x over `dim` (none: all), without overflow.",
          {dim_attr, keep_attr}, infer_float,
          flops_of_operand<0, 4>),  // largest, less it, exp, sum
      row("any", {"aten::any", "aten::any.dim", "aten::any.dims"},
          "Whether any entry over `dim` (none: all) differs from zero.", {dim_attr, keep_attr},
          infer_truth),
      row("all", {"aten::all", "aten::all.dim", "aten::all.dims"},
          "Whether every entry over `dim` (none: all) differs from zero.", {dim_attr, keep_attr},
          infer_truth),
      row("argmax", {"aten::argmax"},
          "Position of the first largest entry along `dim`, or of the first NaN; without `dim` the "
          "position in row-major order.",
          {dim_attr, keep_attr, index_dtype_attr}, infer_arg_extreme),
      row("argmin", {"aten::argmin"},
          "Position of the first smallest entry along `dim`, or of the first NaN; without `dim` "
          "the position in row-major order.",
          {dim_attr, keep_attr, index_dtype_attr}, infer_arg_extreme),
      row("var", {"aten::var.correction"},
          "Variance over `dim` (none: all): squared deviations from the mean, summed and divided "
          "by max(0, n - correction); `correction` none means 1. With `root` its square root, "
          "which may be a float where the variance is none.",
          {dim_attr, {"correction", {}}, keep_attr, {"root", false}}, infer_float,
          flops_of_operand<0, 4>),  // sum, less the mean, square, sum
      row("cumsum", {"aten::cumsum"}, "Running sums along `dim`.", {must_dim_attr, dtype_attr},
          infer_running),
      row("cumprod", {"aten::cumprod"}, "Running products along `dim`.",
          {must_dim_attr, dtype_attr}, infer_running),
  };
}

std::vector<OpDef> two_result_ops() {
  std::vector<OpDef> ops = {
      row("max_dim", {"aten::max.dim"},
          "Largest entries along `dim` and the positions of the first of each; NaN counts as "
          "largest.",
          {must_dim_attr, keep_attr, index_dtype_attr}, infer_extreme_of_dim),
      row("min_dim", {"aten::min.dim"},
          "Smallest entries along `dim` and the positions of the first of each; NaN counts as "
          "smallest.",
          {must_dim_attr, keep_attr, index_dtype_attr}, infer_extreme_of_dim),
  };
  ops[0].results = ops[1].results = {"values", "indices"};
  return ops;
}

}  // namespace

std::vector<bool> reduced_dims(const InferInput& in, const Type& x) {
  const Dims dims = wrap_dims(in, ints_of(in.attrs(), ir::attr::dim), x.rank());
  std::vector<bool> reduced(x.sizes.size(), dims.empty());
  for (int64_t dim : dims) {
    if (x.rank() > 0) reduced[dim] = true;
  }
  return reduced;
}

int64_t single_dim(const InferInput& in, const Type& x) {
  const auto dim = in.attrs().maybe_int(ir::attr::dim);
  return dim ? wrap_dim(in, *dim, x.rank()) : -1;
}

std::vector<OpDef> reduction_ops() {
  return joined({one_result_ops(), two_result_ops()});
}

}  // namespace poptorch::ops
