// Rows of data movement: the elements stay as they are, only their places change.
#include "ops/families/shape.h"

#include <algorithm>

#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

constexpr int64_t required_int = 0;

Types infer_reshape(const InferInput& in) {
  const Type& x = in.operand(0);
  return {{x.dtype, reshaped_sizes(in, x, ints_of(in.attrs(), ir::attr::size))}};
}

// As Tensor.view(dtype): the last dimension grows or shrinks with the size of an element.
Types infer_bitcast(const InferInput& in) {
  const Type& x = in.operand(0);
  Type out{in.attrs().get_dtype(ir::attr::dtype), x.sizes};
  const int64_t from = ir::item_bytes(x.dtype), to = ir::item_bytes(out.dtype);
  if (from == to) return {out};
  USER_CHECK(x.rank() > 0 && x.sizes.back() * from % to == 0, "[bitcast] the last dimension of ",
             x.text(), " has ", x.rank() > 0 ? x.sizes.back() * from : from,
             " bytes, an element of ", ir::name_of(out.dtype), " has ", to,
             ". Give a whole number of elements.");
  out.sizes.back() = x.sizes.back() * from / to;
  return {out};
}

Types infer_permute(const InferInput& in) {
  const Type& x = in.operand(0);
  const Dims dims = wrap_dims(in, ints_of(in.attrs(), ir::attr::dims), x.rank());
  USER_CHECK(static_cast<int64_t>(dims.size()) == x.rank(), "[permute] ", dims.size(),
             " dimensions are named, ", x.text(), " has ", x.rank(),
             ". Name every dimension once.");
  Dims sizes;
  for (int64_t dim : dims) sizes.push_back(x.sizes[dim]);
  return {{x.dtype, sizes}};
}

Types infer_expand(const InferInput& in) {
  const Type& x = in.operand(0);
  Dims sizes = ints_of(in.attrs(), ir::attr::size);
  const int64_t added = static_cast<int64_t>(sizes.size()) - x.rank();
  USER_CHECK(added >= 0, "[expand] ", x.text(), " has ", x.rank(), " dimensions, the new sizes ",
             ir::Attr(sizes).text(), " only ", sizes.size(), ". Give a size for every dimension.");
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); ++d) {
    const int64_t old = d < added ? 1 : x.sizes[d - added];
    if (sizes[d] == -1 && d >= added) sizes[d] = old;
    USER_CHECK(sizes[d] == old || (old == 1 && sizes[d] >= 0), "[expand] dimension ", d, " of ",
               x.text(), " cannot grow from ", old, " to ", sizes[d],
               ". Only dimensions of size 1 can be expanded.");
  }
  return {{x.dtype, sizes}};
}

Types infer_slice(const InferInput& in) {
  const Type& x = in.operand(0);
  return {{x.dtype, slice_window(in, x.sizes, x.actual_strides()).sizes}};
}

Types infer_diagonal(const InferInput& in) {
  const Type& x = in.operand(0);
  return {{x.dtype, diagonal_window(in, x.sizes, x.actual_strides()).sizes}};
}

void check_same_dtype(const InferInput& in, size_t i) {
  USER_CHECK(in.operand(i).dtype == in.operand(0).dtype, "[", in.op.name,
             "] the tensors differ in dtype: ", in.operand(0).text(), " and ", in.operand(i).text(),
             ". Convert them to one dtype.");
}

// torch lets `cat` skip tensors of sizes [0] whatever the others look like.
bool is_skipped(const Type& x) { return x.rank() == 1 && x.sizes[0] == 0; }

Types infer_cat(const InferInput& in) {
  USER_CHECK(in.count() > 0, "[cat] there are no tensors. Give at least one.");
  size_t model = 0;
  while (model + 1 < in.count() && is_skipped(in.operand(model))) ++model;
  Type out{in.operand(0).dtype, in.operand(model).sizes};
  USER_CHECK(out.rank() > 0,
             "[cat] tensors without dimensions cannot be joined. Give them a dimension.");
  const int64_t dim = wrap_dim(in, in.attrs().get_int(ir::attr::dim, 0), out.rank());
  int64_t total = 0;
  for (size_t i = 0; i < in.count(); ++i) {
    check_same_dtype(in, i);
    const Type& x = in.operand(i);
    if (is_skipped(x)) continue;
    bool fits = x.rank() == out.rank();
    for (int64_t d = 0; fits && d < out.rank(); ++d) fits = d == dim || x.sizes[d] == out.sizes[d];
    USER_CHECK(fits, "[cat] sizes differ outside dimension ", dim, ": tensor ", model, " is ",
               in.operand(model).text(), ", tensor ", i, " is ", x.text(),
               ". Make all other sizes equal.");
    total += x.sizes[dim];
  }
  out.sizes[dim] = total;
  return {out};
}

Types infer_pad(const InferInput& in) {
  const Type& x = in.operand(0);
  const Dims pad = ints_of(in.attrs(), ir::attr::pad);
  const int64_t padded = static_cast<int64_t>(pad.size()) / 2;
  USER_CHECK(pad.size() % 2 == 0 && padded <= x.rank(), "[constant_pad_nd] pad has ", pad.size(),
             " numbers, ", x.text(), " takes an even count of at most ", 2 * x.rank(),
             ". Give two numbers for each padded dimension, the last dimension first.");
  Type out{x.dtype, x.sizes};
  for (int64_t i = 0; i < padded; ++i) {
    int64_t& size = out.sizes[x.rank() - 1 - i];
    size += pad[2 * i] + pad[2 * i + 1];
    USER_CHECK(size >= 0, "[constant_pad_nd] dimension ", x.rank() - 1 - i, " of ", x.text(),
               " would get the size ", size, ". Crop less.");
  }
  return {out};
}

Types infer_flip(const InferInput& in) {
  const Type& x = in.operand(0);
  wrap_dims(in, ints_of(in.attrs(), ir::attr::dims), x.rank());
  return {{x.dtype, x.sizes}};
}

Types infer_roll(const InferInput& in) {
  const Type& x = in.operand(0);
  const Dims shifts = ints_of(in.attrs(), ir::attr::shifts);
  const Dims dims = ints_of(in.attrs(), ir::attr::dims);
  USER_CHECK(shifts.size() == dims.size() || (dims.empty() && shifts.size() == 1), "[roll] ",
             shifts.size(), " shifts for ", dims.size(), " dimensions. Give one shift for each.");
  for (int64_t dim : dims) wrap_dim(in, dim, x.rank());
  return {{x.dtype, x.sizes}};
}

Types infer_repeat(const InferInput& in) {
  const Type& x = in.operand(0);
  Dims sizes = ints_of(in.attrs(), ir::attr::repeats);
  const int64_t added = static_cast<int64_t>(sizes.size()) - x.rank();
  USER_CHECK(added >= 0, "[repeat] ", sizes.size(), " repeats for ", x.text(), ", which has ",
             x.rank(), " dimensions. Give one for each dimension.");
  for (size_t d = 0; d < sizes.size(); ++d) {
    USER_CHECK(sizes[d] >= 0, "[repeat] repeat ", d, " is ", sizes[d],
               ", it must not be negative. Use 0 or more.");
    if (static_cast<int64_t>(d) >= added) sizes[d] *= x.sizes[d - added];
  }
  return {{x.dtype, sizes}};
}

using WindowOf = Window (*)(const InferInput&, const Dims&, const Dims&);

// `src` is written over a window of `self`.
template <WindowOf window_of>
Types infer_window_scatter(const InferInput& in) {
  const Type& x = in.operand(0);
  const Type& src = in.operand(1);
  const Dims window = window_of(in, x.sizes, x.actual_strides()).sizes;
  check_same_dtype(in, 1);
  USER_CHECK(src.sizes == window, "[", in.op.name, "] src is ", src.text(),
             ", the part of the tensor that it replaces has the sizes ", ir::Attr(window).text(),
             ". Give a src of these sizes.");
  return {{x.dtype, x.sizes}};
}

// The gradient of a window, put into a tensor of zeros.
template <WindowOf window_of>
Types infer_window_backward(const InferInput& in) {
  const Type& grad = in.operand(0);
  const Dims sizes = ints_of(in.attrs(), ir::attr::input_sizes);
  const Dims window = window_of(in, sizes, ir::contiguous_strides(sizes)).sizes;
  USER_CHECK(grad.sizes == window, "[", in.op.name, "] grad_output is ", grad.text(),
             ", the sizes ", ir::Attr(window).text(), " were expected. Give a gradient of these.");
  return {{grad.dtype, sizes}};
}

Types infer_triangle(const InferInput& in) {
  const Type& x = in.operand(0);
  USER_CHECK(x.rank() >= 2, "[", in.op.name, "] ", x.text(), " has ", x.rank(),
             " dimensions, at least 2 are needed. Give a matrix or a batch of matrices.");
  return {{x.dtype, x.sizes}};
}

// `src` is read and written, the rest stays as it is.
double scatter_bytes(const WorkInput& in) {
  const auto item = static_cast<double>(ir::item_bytes(in.operand(1).dtype));
  return operand_bytes(in, 1) + numel(in.operand(1)) * item;
}

const AttrDef sizes_attr = {"input_sizes", ir::AttrList{}, true};
const AttrDef dim_attr = {"dim", required_int};
const std::vector<AttrDef> slice_attrs = {dim_attr, {"start", {}}, {"end", {}}, {"step", 1}};
const std::vector<AttrDef> diagonal_attrs = {{"offset", 0}, {"dim1", 0}, {"dim2", 1}};

std::vector<AttrDef> with_sizes(std::vector<AttrDef> attrs) {
  attrs.insert(attrs.begin(), sizes_attr);
  return attrs;
}

// Moves the elements of an operand or, with bytes `none`, shows them in another way.
OpDef row(std::string name, std::vector<std::string> aten, std::string doc,
          std::vector<AttrDef> attrs, Infer infer, Count bytes = nullptr,
          std::vector<std::string> operands = {"self"}) {
  return {.name = std::move(name),
          .aten = std::move(aten),
          .doc = std::move(doc),
          .operands = std::move(operands),
          .attrs = std::move(attrs),
          .infer = infer,
          .flops = none,
          .bytes = bytes,
          .strided = Strided::all,
          .view = bytes == none};
}

std::vector<OpDef> view_like_ops() {
  return {
      row("reshape", {"aten::view", "aten::_unsafe_view"},
          "The same elements in row-major order with other sizes; one size may be -1.",
          {{"size", ir::AttrList{}, true}}, infer_reshape, none),
      {.name = "bitcast",
       .doc = "The bytes of the operand, in row-major order, as elements of another dtype.",
       .operands = {"self"},
       .attrs = {{"dtype", ir::DType::f32, true}},
       .infer = infer_bitcast,
       .flops = none,
       .bytes = none},
      row("permute", {"aten::permute"},
          "Dimension i of the result is dimension dims[i] of the operand.",
          {{"dims", ir::AttrList{}, true}}, infer_permute, none),
      row("expand", {"aten::expand"},
          "Repeats dimensions of size 1; -1 keeps a size, new dimensions come first.",
          {{"size", ir::AttrList{}, true}, {"implicit", false}}, infer_expand, none),
      row("slice", {"aten::slice.Tensor"},
          "Entries start, start + step, ... before end of one dimension.", slice_attrs, infer_slice,
          none),
      row("diagonal", {"aten::diagonal"},
          "The diagonal over dim1 and dim2 as a new last dimension.", diagonal_attrs,
          infer_diagonal, none),
  };
}

std::vector<OpDef> joining_ops() {
  return {
      row("cat", {"aten::cat"}, "Joins tensors along one of their dimensions.", {dim_attr},
          infer_cat, nullptr, {"tensors*"}),
      row("constant_pad_nd", {"aten::constant_pad_nd"},
          "Adds `value` before and after each dimension (last one first in `pad`); negative "
          "numbers crop.",
          {{"pad", ir::AttrList{}, true}, {"value", 0.0}}, infer_pad),
      row("flip", {"aten::flip"}, "Reverses the order of the entries of some dimensions.",
          {{"dims", ir::AttrList{}, true}}, infer_flip),
      row("roll", {"aten::roll"},
          "Shifts entries along dimensions, round the end; without `dims` in flat order.",
          {{"shifts", ir::AttrList{}, true}, {"dims", ir::AttrList{}}}, infer_roll),
      row("repeat", {"aten::repeat"},
          "Lays copies of the tensor side by side, repeats[i] along dimension i.",
          {{"repeats", ir::AttrList{}, true}}, infer_repeat),
      row("tril", {"aten::tril"}, "Zeros above the given diagonal of each matrix.",
          {{"diagonal", 0}}, infer_triangle),
      row("triu", {"aten::triu"}, "Zeros below the given diagonal of each matrix.",
          {{"diagonal", 0}}, infer_triangle),
  };
}

std::vector<OpDef> window_ops() {
  return {
      {.name = "slice_scatter",
       .aten = {"aten::slice_scatter"},
       .doc = "The tensor with a slice replaced by `src`.",
       .operands = {"self", "src"},
       .attrs = slice_attrs,
       .infer = infer_window_scatter<slice_window>,
       .flops = none,
       .bytes = scatter_bytes,
       .strided = Strided::all,
       .inplace = {{0}}},
      {.name = "diagonal_scatter",
       .aten = {"aten::diagonal_scatter"},
       .doc = "The tensor with a diagonal replaced by `src`.",
       .operands = {"self", "src"},
       .attrs = diagonal_attrs,
       .infer = infer_window_scatter<diagonal_window>,
       .flops = none,
       .bytes = scatter_bytes,
       .strided = Strided::all,
       .inplace = {{0}}},
      row("slice_backward", {"aten::slice_backward"},
          "Zeros of `input_sizes` with the gradient in the place of the slice.",
          with_sizes(slice_attrs), infer_window_backward<slice_window>, nullptr, {"grad_output"}),
      row("diagonal_backward", {"aten::diagonal_backward"},
          "Zeros of `input_sizes` with the gradient on the diagonal.", with_sizes(diagonal_attrs),
          infer_window_backward<diagonal_window>, nullptr, {"grad_output"}),
  };
}

}  // namespace

std::vector<OpDef> shape_ops() {
  return joined({view_like_ops(), joining_ops(), window_ops()});
}

}  // namespace poptorch::ops
