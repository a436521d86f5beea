// Kernels: the code that computes an op. A kernel is prepared once, when a program is planned: it
// reads attributes, dtypes, sizes and strides, chooses its loop, and says how much scratch memory
// it needs. What it returns is run many times and only sees pointers. (Looking attributes up costs
// more than a small kernel takes.)
//
//   Prepared relu(const Call& call) {
//     const int64_t n = call.out(0).numel();
//     return {[n](const Args& args) { ... args.in<float>(0), args.out<float>(), args.threads }};
//   }
//   KERNEL("relu", relu)
//
// What must hold:
//   - no allocation, no locks, no exceptions for data (a user's bad index may throw UserError)
//     while running; nothing that is returned refers to the Call or its op;
//   - results do not depend on the number of threads or on what lies in scratch or outputs before;
//   - in and out may be equal only where the op's row says so (`inplace`).
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "ir/graph.h"
#include "ops/op_def.h"
#include "support/loading/at_load.h"

namespace poptorch::ops {

struct Args {
  void* const* inputs;    // operand_slots(op); nullptr: absent
  void* const* outputs;   // one for each result
  std::byte* scratch;     // Prepared::scratch_bytes, 64-byte aligned, contents arbitrary
  int threads;

  template <typename T>
  const T* in(size_t i) const { return static_cast<const T*>(inputs[i]); }
  template <typename T>
  T* out(size_t i = 0) const { return static_cast<T*>(outputs[i]); }
};

using Run = std::function<void(const Args&)>;

struct Prepared {
  Run run;
  size_t scratch_bytes = 0;
  // Which algorithm of its table (support/algorithms/algorithm.h) computes the op: "winograd"; of
  // an op with several results "dx=winograd dw=im2col". Empty: there is one way only.
  std::string algorithm = {};
};

// The op to prepare, with the types its operands and results really have. Attributes that are not
// written have their row's default.
struct Call {
  const ir::Op& op;
  int threads;  // the most that a run will use: for sizing per-thread scratch

  size_t in_count() const { return op.operands.size(); }
  bool has_in(size_t i) const { return op.operand(i) != nullptr; }
  const ir::Type& in(size_t i) const { return op.operand(i)->type; }
  const ir::Type& out(size_t i = 0) const { return op.result(i)->type; }
  const ir::Attrs& attrs() const { return op.attrs; }
};

using Prepare = Prepared (*)(const Call&);

// The dtypes a kernel is written for. Calls whose tensors are f16 or bf16 are wrapped
// (kernels/float16.h): operands are converted to f32 in scratch, the f32 kernel runs, results are
// rounded back.
struct KernelDef {
  ir::RegisteredName op;
  Prepare prepare;
  bool native_half = false;  // takes f16/bf16 tensors itself (data movement, cast, ATen calls)
  // Of an op whose weights may be packed or not: whether packing gains nothing on this machine.
  bool (*takes_unpacked)(const Call&) = nullptr;
};

// Registers at load time. A second kernel for one op is an internal error.
void register_kernel(const KernelDef& def);

// What prepares calls of the op with 16-bit floats; no run: the other kernel is to be wrapped.
void register_half_kernel(ir::RegisteredName op, Prepare prepare);

// Whether an operand or result of the call is f16 or bf16.
bool uses_half(const Call& call);

// Registers what prepares 16-bit calls for kernels that are written for f32. Once, at load time.
using PrepareHalf = Prepared (*)(const Call& call, Prepare inner);
void register_half(PrepareHalf prepare);

// nullptr when the op has none.
const KernelDef* find_kernel(ir::OpName op);

// Prepares the op's kernel, wrapped for half precision where needed; a user error when there is no
// kernel.
Prepared prepare(const Call& call);

// At namespace scope of a file in csrc/kernels: KERNEL("gelu", gelu), KERNEL("clone", clone, true).
#define KERNEL(name, ...) \
  AT_LOAD("kernel." name) { ::poptorch::ops::register_kernel({name, __VA_ARGS__}); }
// HALF_KERNEL("sum", float16_sum)
#define HALF_KERNEL(name, prepare) \
  AT_LOAD("half." name) { ::poptorch::ops::register_half_kernel(name, prepare); }

}  // namespace poptorch::ops

namespace poptorch::kernels {

// Every kernel is written in these.
using ops::Args;
using ops::Call;
using ops::Prepared;

}  // namespace poptorch::kernels
