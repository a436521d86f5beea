// Element-wise functions by name and dtype.
#pragma once

#include <array>

#include "kernels/simd/inner_loop.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

// The inner loop of an element-wise op.
struct Function {
  simd::InnerLoopFn run = nullptr;
  std::array<double, 6> params{};  // or other bytes, which `run` reads
  int picoseconds = 0;
  int operand_count = 0;
  std::array<int, 3> operands = {0, 1, 2};  // numbers of the op's operands, as the loop takes them
  bool rounds = false;                      // applies InnerLoop::rounding
};

// Of any op of an element-wise row but dropout, attributes complete. A user error when it is not
// computed for the dtype of its operands.
Function function_of(const ops::Call& call);
Function cast_function(ir::DType from, ir::DType to);

// Tables of one dtype, in files of their own.
struct FunctionTables {
  std::string_view kind;  // "f64", "integer": bool counts as one
  std::span<const simd::NamedLoop> (*unary)(ir::DType);
  std::span<const simd::NamedLoop> (*binary)(ir::DType);
};

// Those of types other than f32, made at load time.
std::vector<FunctionTables>& function_tables();

// condition ? x : y for items of this size; operands condition (bool), x, y.
simd::InnerLoopFn where_loop(int64_t item_bytes);
// A copy.
simd::InnerLoopFn copy_loop(int64_t item_bytes);

}  // namespace poptorch::kernels
