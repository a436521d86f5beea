// 16-bit floats for kernels that are written for f32, which need no code for them.
#pragma once

#include <functional>

#include "ops/kernel.h"

namespace poptorch::kernels {

// Operands are upcast in scratch, the f32 kernel runs, results are rounded back. Those of a type
// that `stays` are given to the kernel as they are.
using Stays = std::function<bool(const ir::Type&)>;
ops::Prepared prepare_upcast(const ops::Call& call, ops::Prepare inner, const Stays& stays = {});

// The same slice by slice, where the op treats the slices along its leading dimensions one by one:
// scratch is a few slices for each thread. No run when that does not pay or cannot be done.
ops::Prepared prepare_sliced(const ops::Call& call, ops::Prepare inner);

// The same op on f32: 16-bit floats replaced in the types and in dtype attributes.
struct UpcastOp {
  ir::Op op;
  std::vector<std::unique_ptr<ir::Value>> operands;

  explicit UpcastOp(const ir::Op& original, const Stays& stays = {});
};

}  // namespace poptorch::kernels
