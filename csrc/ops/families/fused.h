// The body of a `fused` op: element-wise ops that are computed together, block by block.
//
//   %2, %3 = fused %0, %1 {body=[["mul", 0, 1], ["relu", 2], ["add", 3, 0, "alpha", 2.0]],
//                          out=[2, 4]} : f32[8,4], f32[8,4]
//
// An entry of `body` is an op: its name, the numbers of its operands, its attributes. The operands
// of `fused` count from 0, then the results of the entries in order; `out` lists the numbers that
// are results of `fused`.
#pragma once

#include "ops/op_def.h"

namespace poptorch::ops {

// The body as a graph: an `input` for each operand, then the entries; a user error when an entry is
// no element-wise op or its result has other sizes than the others.
ir::Graph body_graph(const ir::Op& fused);

// An entry of `body` for the op, whose operands have these numbers.
ir::AttrList body_entry(const ir::Op& op, const std::vector<int64_t>& operands);

// For reports: `fused(mul relu add)`.
std::string fused_name(const ir::Op& fused);

// Whether the op may be an entry: of an element-wise row, one result, and of tensors for which each
// element is computed by itself without errors.
bool is_elementwise(const ir::Op& op);

}  // namespace poptorch::ops
