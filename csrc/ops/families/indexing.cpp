// Rows that find entries by position: gather, scatter, advanced indexing.
#include <algorithm>
#include <limits>

#include "ops/families/indexing.h"

#include "ops/families/reduction.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

std::string sizes_text(const Dims& sizes) { return ir::Attr(sizes).text(); }

void check_equal_dtype(const InferInput& in, size_t i, const char* name) {
  USER_CHECK(in.operand(i).dtype == in.operand(0).dtype, "[", in.op.name, "] self is ",
             in.operand(0).text(), ", ", name, " is ", in.operand(i).text(),
             ". Convert them to one dtype.");
}

// The index has the rank of `other` and fits into it, dimension `free` excepted (-1: none).
void check_fits(const InferInput& in, const Type& other, const char* name, int64_t free) {
  const Type& index = in.operand(1);
  bool fits = std::max<int64_t>(index.rank(), 1) == std::max<int64_t>(other.rank(), 1);
  for (int64_t d = 0; fits && d < std::min(index.rank(), other.rank()); ++d) {
    fits = d == free || index.sizes[d] <= other.sizes[d];
  }
  USER_CHECK(fits || index.numel() == 0, "[", in.op.name, "] the index ", index.text(),
             " does not fit into ", name, " ", other.text(),
             free < 0 ? "" : concat(", dimension ", free, " apart"),
             ". Give an index with as many dimensions and no larger sizes.");
}

Types infer_gather(const InferInput& in) {
  const Type& x = in.operand(0);
  check_index(in, 1);
  check_fits(in, x, "self", single_dim(in, x));
  return {{x.dtype, in.operand(1).sizes, {}}};
}

Types infer_scatter(const InferInput& in) {
  const Type& x = in.operand(0);
  check_index(in, 1);
  check_equal_dtype(in, 2, "src");
  check_fits(in, x, "self", single_dim(in, x));
  check_fits(in, in.operand(2), "src", -1);
  return {{x.dtype, x.sizes, {}}};
}

Types infer_scatter_reduce(const InferInput& in) {
  scatter_reduce_of(in);
  return infer_scatter(in);
}

// The number of entries of a list of positions: a vector, or one number.
int64_t positions(const InferInput& in) {
  check_index(in, 1);
  const Type& index = in.operand(1);
  USER_CHECK(index.rank() <= 1, "[", in.op.name, "] the index is ", index.text(),
             ", it must be a vector. Flatten it.");
  return index.numel();
}

Types infer_index_select(const InferInput& in) {
  const Type& x = in.operand(0);
  const int64_t count = positions(in);
  Dims sizes = x.sizes;
  const int64_t dim = single_dim(in, x);
  if (!sizes.empty()) sizes[dim] = count;
  return {{x.dtype, sizes, {}}};
}

Types infer_index_add(const InferInput& in) {
  const Type& x = in.operand(0);
  check_equal_dtype(in, 2, "source");
  Dims sizes = infer_index_select(in)[0].sizes;
  USER_CHECK(in.operand(2).sizes == sizes, "[index_add] source is ", in.operand(2).text(),
             ", the sizes ", sizes_text(sizes), " are needed. Give one entry for each index.");
  return {{x.dtype, x.sizes, {}}};
}

Types infer_bincount(const InferInput& in) {
  check_index(in, 0);
  const Type& x = in.operand(0);
  const int64_t length = in.attrs().get_int(ir::attr::minlength);
  USER_CHECK(x.rank() == 1 && length > 0, "[bincount] self is ", x.text(), ", minlength is ",
             length, ". Count the numbers of a vector, with a minlength of at least 1.");
  if (!in.has(1)) return {{index_dtype(in, x.numel()), {length}, {}}};  // no count is larger
  const Type& weights = in.operand(1);
  USER_CHECK(weights.sizes == x.sizes && ir::is_float(weights.dtype), "[bincount] self is ",
             x.text(), ", weights are ", weights.text(),
             ". Give a weight of floating point for each number.");
  return {{weights.dtype, {length}, {}}};
}

Types infer_index(const InferInput& in) {
  return {{in.operand(0).dtype, advanced_index(in, 1, false).sizes, {}}};
}

bool broadcasts_to(const Dims& from, const Dims& to) {
  if (from.size() > to.size()) return false;
  for (size_t back = 1; back <= from.size(); ++back) {
    const int64_t size = from[from.size() - back];
    if (size != 1 && size != to[to.size() - back]) return false;
  }
  return true;
}

Types infer_index_put(const InferInput& in) {
  const Type& x = in.operand(0);
  const AdvancedIndex index = advanced_index(in, 2, true);
  check_equal_dtype(in, 1, "values");
  USER_CHECK(index.is_mask || broadcasts_to(in.operand(1).sizes, index.sizes),
             "[index_put] values are ", in.operand(1).text(), ", the indexed part has the sizes ",
             sizes_text(index.sizes), ". Give values that broadcast to it.");
  return {{x.dtype, x.sizes, {}}};
}

// How many entries of a dimension a dynamic slice takes, of those that `size` covers.
int64_t dynamic_count(const InferInput& in, const Type& x) {
  const int64_t dim = single_dim(in, x), size = in.attrs().get_int(ir::attr::size);
  const int64_t step = in.attrs().get_int(ir::attr::step);
  const size_t start = in.count() - 1;
  check_index(in, start);
  USER_CHECK(in.operand(start).numel() == 1, "[", in.op.name, "] start is ",
             in.operand(start).text(), ", one number is needed. Give a tensor of one element.");
  USER_CHECK(x.rank() > 0 && size >= 1 && size <= x.sizes[dim] && step >= 1, "[", in.op.name,
             "] size is ", size, ", step is ", step, " along dimension ", dim, " of ", x.text(),
             ". Use a size of 1 to that of the dimension, and a step of at least 1.");
  return (size - 1) / step + 1;
}

Types infer_dynamic_slice(const InferInput& in) {
  const Type& x = in.operand(0);
  const int64_t count = dynamic_count(in, x);
  Dims sizes = x.sizes;
  sizes[single_dim(in, x)] = count;
  return {{x.dtype, sizes, {}}};
}

Types infer_dynamic_update(const InferInput& in) {
  const Type& x = in.operand(0);
  check_equal_dtype(in, 1, "src");
  Dims sizes = infer_dynamic_slice(in)[0].sizes;
  USER_CHECK(in.operand(1).sizes == sizes, "[dynamic_update] src is ", in.operand(1).text(),
             ", the sizes ", sizes_text(sizes), " are needed. Give it the sizes of the part that "
             "it replaces.");
  return {{x.dtype, x.sizes, {}}};
}

// An update of `entries` of self by as many of operand `src`: these are read, those written, and
// read before where the update depends on them (`reads_old`). All other operands are positions,
// and several may be equal.
double update_bytes(const WorkInput& in, size_t src, double entries, bool reads_old) {
  const auto item = static_cast<double>(ir::item_bytes(in.operand(0).dtype));
  const double changed = std::min(entries, numel(in.operand(0)));
  return std::min(operand_bytes(in, src), entries * item) + changed * item * (1 + reads_old) +
         operands_bytes(in, 1, src);
}

template <size_t counted, size_t src, bool reads_old>
double update_bytes_by(const WorkInput& in) {
  return update_bytes(in, src, numel(in.operand(counted)), reads_old);
}

// Entries that index_put changes; of a mask all may be.
double put_entries(const WorkInput& in) {
  const AdvancedIndex index = advanced_index(in, 2, true);
  return index.is_mask ? numel(in.operand(0)) : static_cast<double>(ir::product(index.sizes));
}

double index_put_flops(const WorkInput& in) {
  return in.attrs().get_bool(ir::attr::accumulate) ? if_float(in, put_entries(in)) : 0;
}

double index_put_bytes(const WorkInput& in) {
  return update_bytes(in, 1, put_entries(in), in.attrs().get_bool(ir::attr::accumulate));
}

const AttrDef dim_attr = {"dim", 0, true};
const AttrDef index_dtype_attr = {"index_dtype", DType::i32};

std::vector<OpDef> by_dim_ops() {
  return {
      {.name = "gather",
       .aten = {"aten::gather"},
       .doc = "out[..., i, ...] = self[..., index[..., i, ...], ...]: positions along `dim`.",
       .operands = {"self", "index"},
       .attrs = {dim_attr, {"sparse_grad", false}},
       .infer = infer_gather,
       .flops = none,
       .bytes = look_up_bytes},
      {.name = "scatter",
       .aten = {"aten::scatter.src"},
       .doc = "`self` with src[..., i, ...] written to position index[..., i, ...] of `dim`; the "
              "last one in order stays.",
       .operands = {"self", "index", "src"},
       .attrs = {dim_attr},
       .infer = infer_scatter,
       .flops = none,
       .bytes = update_bytes_by<1, 2, false>,
       .inplace = {{0}}},
      {.name = "scatter_add",
       .aten = {"aten::scatter_add"},
       .doc = "`self` with src[..., i, ...] added at position index[..., i, ...] of `dim`.",
       .operands = {"self", "index", "src"},
       .attrs = {dim_attr},
       .infer = infer_scatter,
       .flops = flops_of_operand<1>,
       .bytes = update_bytes_by<1, 2, true>,
       .inplace = {{0}}},
      {.name = "scatter_reduce",
       .aten = {"aten::scatter_reduce.two"},
       .doc = "`self` with src[..., i, ...] taken in at position index[..., i, ...] of `dim`: the "
              "\"sum\", \"prod\", \"mean\", \"amax\" or \"amin\" of all that a position gets. "
              "Without `include_self` what stood there does not count. NaN is larger and smaller "
              "than numbers.",
       .operands = {"self", "index", "src"},
       .attrs = {dim_attr, {"reduce", "sum", true}, {"include_self", true}},
       .infer = infer_scatter_reduce,
       .flops = flops_of_operand<1>,
       .bytes = update_bytes_by<1, 2, true>,
       .inplace = {{0}}},
      {.name = "index_select",
       .aten = {"aten::index_select"},
       .doc = "The entries of `dim` that the vector `index` lists.",
       .operands = {"self", "index"},
       .attrs = {dim_attr},
       .infer = infer_index_select,
       .flops = none,
       .bytes = look_up_bytes},
      {.name = "bincount",
       .aten = {"poptorch::bincount"},
       .doc = "How often each number from 0 to `minlength` - 1 occurs in the vector `self`, or the "
              "sum of the weights where it does. Larger numbers are refused.",
       .operands = {"self", "weights?"},
       .attrs = {{"minlength", 0, true}, index_dtype_attr},
       .infer = infer_bincount,
       .flops = flops_of_operand<>},
      {.name = "index_add",
       .aten = {"aten::index_add"},
       .doc = "`self` with alpha * source[i] added to entry index[i] of `dim`.",
       .operands = {"self", "index", "source"},
       .attrs = {dim_attr, {"alpha", 1.0}},
       .infer = infer_index_add,
       .flops = flops_of_operand<2>,
       .bytes = update_bytes_by<2, 2, true>,
       .inplace = {{0}}},
  };
}

std::vector<OpDef> advanced_ops() {
  return {
      {.name = "index",
       .aten = {"aten::index.Tensor", "aten::_unsafe_index.Tensor"},
       .doc = "self[indices]: one index tensor for each dimension, absent ones meaning all of it. "
              "Negative positions count from the end.",
       .operands = {"self", "indices?*"},
       .infer = infer_index,
       .flops = none,
       .bytes = look_up_bytes},
      {.name = "index_put",
       .aten = {"aten::index_put", "aten::_unsafe_index_put"},
       .doc = "`self` with self[indices] = values (+= where `accumulate`); one bool mask may stand "
              "for all indices. Of equal positions the last one stays.",
       .operands = {"self", "values", "indices?*"},
       .attrs = {{"accumulate", false}},
       .infer = infer_index_put,
       .flops = index_put_flops,
       .bytes = index_put_bytes,
       .inplace = {{0}}},
  };
}

std::vector<OpDef> dynamic_ops() {
  return {
      {.name = "dynamic_slice",
       .aten = {"poptorch::dynamic_slice"},
       .doc = "Every `step`-th of the `size` entries of `dim` from `start` on, a number that is "
              "known at run time and counts from the end when it is negative. A part that is not "
              "inside is refused.",
       .operands = {"self", "start"},
       .attrs = {dim_attr, {"size", 1, true}, {"step", 1}},
       .infer = infer_dynamic_slice,
       .flops = none,
       .bytes = look_up_bytes},
      {.name = "dynamic_update",
       .aten = {"poptorch::dynamic_update"},
       .doc = "`self` with `src` in place of what dynamic_slice takes.",
       .operands = {"self", "src", "start"},
       .attrs = {dim_attr, {"size", 1, true}, {"step", 1}},
       .infer = infer_dynamic_update,
       .flops = none,
       .bytes = update_bytes_by<1, 1, false>,
       .inplace = {{0}}},
  };
}

// Whether the indexed dimensions are neighbours.
bool adjacent(const Dims& dims) {
  return dims.empty() || dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size());
}

// One bool tensor, whose dimensions are those of self from dimension `at` on.
AdvancedIndex mask_index(const InferInput& in, size_t operand, int64_t at) {
  const Type& x = in.operand(0);
  const Type& mask = in.operand(operand);
  AdvancedIndex index;
  index.is_mask = true;
  index.operands = {operand};
  bool fits = mask.rank() > 0 && at + mask.rank() <= x.rank();
  for (int64_t d = 0; fits && d < mask.rank(); ++d) {
    fits = mask.sizes[d] == x.sizes[at + d];
    index.dims.push_back(at + d);
  }
  USER_CHECK(fits, "[", in.op.name, "] the mask ", mask.text(), " does not fit ", x.text(),
             " from dimension ", at, " on. Give a mask with the sizes of these dimensions.");
  return index;
}

}  // namespace

DType index_dtype(const InferInput& in, int64_t entries) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  USER_CHECK(entries <= most, "[", in.op.name, "] positions in ", in.operand(0).text(),
             " go up to ", entries - 1, ", they are counted up to ", most - 1,
             ". Cut the tensor into parts.");
  const DType dtype = in.attrs().get_dtype(ir::attr::index_dtype);
  USER_CHECK(dtype == DType::i32 || dtype == DType::i64, "[", in.op.name, "] index_dtype is ",
             name_of(dtype), ", positions are i32 or i64. Use one of these.");
  return dtype;
}

void check_index(const InferInput& in, size_t i) {
  const DType dtype = in.operand(i).dtype;
  USER_CHECK(dtype == DType::i32 || dtype == DType::i64, "[", in.op.name, "] the index is ",
             in.operand(i).text(), ", positions are i32 or i64. Convert it.");
}

ScatterReduce scatter_reduce_of(const InferInput& in) {
  const std::string& name = in.attrs().get_string(ir::attr::reduce);
  const std::pair<const char*, ScatterReduce> all[] = {{"sum", ScatterReduce::sum},
                                                       {"prod", ScatterReduce::prod},
                                                       {"mean", ScatterReduce::mean},
                                                       {"amax", ScatterReduce::amax},
                                                       {"amin", ScatterReduce::amin}};
  for (const auto& [word, reduce] : all) {
    if (name == word) return reduce;
  }
  throw_user_error(concat("[scatter_reduce] reduce is \"", name,
                          "\". Use \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\"."));
}

AdvancedIndex advanced_index(const InferInput& in, size_t first, bool mask_allowed) {
  const Type& x = in.operand(0);
  AdvancedIndex index;
  for (size_t i = first; i < in.count(); ++i) {
    if (!in.has(i)) continue;
    if (in.operand(i).dtype == DType::boolean) {
      USER_CHECK(mask_allowed && index.operands.empty(), "[", in.op.name, "] a bool mask ",
                 in.operand(i).text(),
                 " selects a number of entries that is only known at run "
                 "time. Use torch.where, or give positions.");
      for (size_t later = i + 1; later < in.count(); ++later) {
        USER_CHECK(!in.has(later), "[", in.op.name,
                   "] a bool mask cannot be combined with other "
                   "indices: operands ",
                   i, " and ", later, ". Use torch.where.");
      }
      return mask_index(in, i, static_cast<int64_t>(i - first));
    }
    check_index(in, i);
    index.operands.push_back(i);
    index.dims.push_back(static_cast<int64_t>(i - first));
    index.batch = broadcast_sizes(in, index.batch, in.operand(i).sizes);
  }
  USER_CHECK(!index.dims.empty() && index.dims.back() < x.rank(), "[", in.op.name, "] ", x.text(),
             " has ", x.rank(), " dimensions, an index is given for dimension ",
             index.dims.empty() ? -1 : index.dims.back(), ". Give 1 to ", x.rank(), " indices.");
  index.batch_at = adjacent(index.dims) ? index.dims.front() : 0;
  size_t next = 0;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (next < index.dims.size() && index.dims[next] == d) {
      ++next;
    } else {
      index.sizes.push_back(x.sizes[d]);
    }
  }
  index.sizes.insert(index.sizes.begin() + index.batch_at, index.batch.begin(), index.batch.end());
  return index;
}

std::vector<OpDef> indexing_ops() {
  return joined({by_dim_ops(), advanced_ops(), dynamic_ops(), sorting_ops(), point_ops()});
}

}  // namespace poptorch::ops
