// Running an op's type rule, and the rules that families share.
#include <algorithm>
#include <array>

#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::ops {

std::string source_text(const ir::SourceLocation& source) {
  if (source.empty()) return "";
  std::string text;
  if (!source.file.empty()) text += concat("\n  at ", source.file, ":", source.line);
  if (!source.module.empty()) {
    text += concat(text.empty() ? "\n  in module \"" : ", module \"", source.module, "\"");
  }
  return text;
}

const ir::Type& InferInput::operand(size_t i) const {
  INTERNAL_CHECK(has(i), "the type rule of ", op.name, " reads operand ", i, " of ", count(),
                 ", which is absent");
  return op.operands[i]->type;
}

namespace {

// Rows whose kernels read each operand by its own dtype.
constexpr std::array mixes_floats = {ir::op::accumulate, ir::op::adam_update, ir::op::fused,
                                    ir::op::loop, ir::op::sgd_update};

// Other kernels choose between f32 and f64 by one operand. 16-bit floats may be mixed with f32
// where the row's own rule says nothing: kernels get f32 then.
void check_floats(const ir::Op& op) {
  if (std::find(mixes_floats.begin(), mixes_floats.end(), op.name) != mixes_floats.end()) return;
  const ir::Value* first = nullptr;
  for (const ir::Value* operand : op.operands) {
    if (operand == nullptr || !ir::is_float(operand->type.dtype)) continue;
    if (first == nullptr) first = operand;
    const bool is_wide = operand->type.dtype == ir::DType::f64;
    USER_CHECK(is_wide == (first->type.dtype == ir::DType::f64), "[", op.name,
               "] dtypes differ: ", first->type.text(), " and ", operand->type.text(),
               ". Cast one of them.");
  }
}

}  // namespace

void check_size(ir::OpName op, const ir::Type& type) {
  USER_CHECK(type.is_sane(), "[", op, "] a result would be ", type.text(),
             ", no tensor has a negative size or more than ", ir::most_bytes,
             " bytes. Check the sizes that it is computed from.");
}

std::vector<ir::Type> infer(const ir::Op& op) {
  const OpDef& row = op_def(op.name);
  try {
    check_signature(row, op);
    INTERNAL_CHECK(row.infer != nullptr, "op ", op.name,
                   " has no type rule: its types must be given");
    ir::Op complete;
    complete.name = op.name;
    complete.operands = op.operands;
    complete.attrs = complete_attrs(row, op.attrs);
    std::vector<ir::Type> types = row.infer({complete});
    check_floats(op);
    for (const ir::Type& type : types) check_size(op.name, type);
    return types;
  } catch (const UserError& error) {
    throw UserError(error.what() + source_text(op.source_location), error.kind);
  }
}

std::vector<ir::Type> same_as_first(const InferInput& in) {
  return {{in.operand(0).dtype, in.operand(0).sizes, {}}};
}

ir::Dims broadcast_sizes(const InferInput& in, const ir::Dims& a, const ir::Dims& b) {
  const size_t rank = std::max(a.size(), b.size());
  ir::Dims out(rank, 1);
  for (size_t back = 1; back <= rank; ++back) {
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    USER_CHECK(x == y || x == 1 || y == 1, "[", in.op.name, "] sizes do not broadcast: ",
               ir::Type{ir::DType::f32, a, {}}.text().substr(3), " has ", x, " and ",
               ir::Type{ir::DType::f32, b, {}}.text().substr(3), " has ", y, " in dimension -",
               back, ". Make them equal, or one of them 1.");
    out[rank - back] = x == 1 ? y : x;
  }
  return out;
}

std::vector<ir::Type> broadcast_all(const InferInput& in) {
  ir::Type out{in.operand(0).dtype, in.operand(0).sizes, {}};
  for (size_t i = 1; i < in.count(); ++i) {
    if (!in.has(i)) continue;
    USER_CHECK(in.operand(i).dtype == out.dtype, "[", in.op.name, "] dtypes differ: ",
               in.operand(0).text(), " and ", in.operand(i).text(), ". Cast one of them.");
    out.sizes = broadcast_sizes(in, out.sizes, in.operand(i).sizes);
  }
  return {out};
}

std::vector<ir::Type> broadcast_to_bool(const InferInput& in) {
  std::vector<ir::Type> out = broadcast_all(in);
  out[0].dtype = ir::DType::boolean;
  return out;
}

int64_t wrap_dim(const InferInput& in, int64_t dim, int64_t rank) {
  const int64_t limit = std::max<int64_t>(rank, 1);  // a scalar has dimensions 0 and -1
  USER_CHECK(dim >= -limit && dim < limit, "[", in.op.name, "] dimension ", dim,
             " is out of range for a tensor of ", rank, " dimensions. Use ", -limit, " to ",
             limit - 1, ".");
  return dim < 0 ? dim + limit : dim;
}

}  // namespace poptorch::ops
