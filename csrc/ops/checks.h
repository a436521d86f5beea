// Checks that type rules of several families make.
#pragma once

#include "ops/op_def.h"

namespace poptorch::ops {

// The operand's name in its row, without `?`.
std::string operand_name(const InferInput& in, size_t i);

// User errors that name the operand. An absent optional operand passes.
void expect_sizes(const InferInput& in, size_t i, const ir::Dims& sizes);
void expect_dtype(const InferInput& in, size_t i, ir::DType dtype);
// Sizes and dtype of operand `model`.
void expect_like(const InferInput& in, size_t i, size_t model);
// Any floating-point dtype.
void expect_float(const InferInput& in, size_t i);
// i32, or i64 when 64 bits are kept.
void expect_index(const InferInput& in, size_t i);
// At least `rank` dimensions.
void expect_rank(const InferInput& in, size_t i, int64_t rank);

}  // namespace poptorch::ops
