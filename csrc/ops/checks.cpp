#include "ops/checks.h"

#include "support/error.h"

namespace poptorch::ops {

std::string operand_name(const InferInput& in, size_t i) {
  std::string name = op_def(in.op.name).operands[i];
  if (name.ends_with('?')) name.pop_back();
  return name;
}

void expect_sizes(const InferInput& in, size_t i, const ir::Dims& sizes) {
  if (!in.has(i)) return;
  USER_CHECK(in.operand(i).sizes == sizes, "[", in.op.name, "] ", operand_name(in, i), " is ",
             in.operand(i).text(), ", the sizes ", ir::Attr(sizes).text(),
             " were expected. Give a tensor of these sizes.");
}

void expect_dtype(const InferInput& in, size_t i, ir::DType dtype) {
  if (!in.has(i)) return;
  USER_CHECK(in.operand(i).dtype == dtype, "[", in.op.name, "] ", operand_name(in, i), " is ",
             in.operand(i).text(), ", the dtype ", name_of(dtype), " was expected. Cast it.");
}

void expect_like(const InferInput& in, size_t i, size_t model) {
  expect_sizes(in, i, in.operand(model).sizes);
  expect_dtype(in, i, in.operand(model).dtype);
}

void expect_float(const InferInput& in, size_t i) {
  USER_CHECK(is_float(in.operand(i).dtype), "[", in.op.name, "] ", operand_name(in, i), " is ",
             in.operand(i).text(), ", a floating-point dtype was expected. Cast it to f32.");
}

void expect_index(const InferInput& in, size_t i) {
  const ir::DType dtype = in.operand(i).dtype;
  USER_CHECK(dtype == ir::DType::i32 || dtype == ir::DType::i64, "[", in.op.name, "] ",
             operand_name(in, i), " is ", in.operand(i).text(),
             ", the dtype i32 or i64 was expected. Cast it.");
}

void expect_rank(const InferInput& in, size_t i, int64_t rank) {
  USER_CHECK(in.operand(i).rank() >= rank, "[", in.op.name, "] ", operand_name(in, i), " is ",
             in.operand(i).text(), " with ", in.operand(i).rank(), " dimensions, at least ", rank,
             " were expected. Add dimensions.");
}

}  // namespace poptorch::ops
