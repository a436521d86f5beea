// One ATen call as a kernel: operands become tensors over the planned memory, the call runs with
// planned memory (aten/allocator.h) in a clean dispatch state, and results end at their planned
// addresses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace poptorch::aten {

using Tensors = std::vector<at::Tensor>;

// Computes `results` (empty at first) from `inputs` (undefined: an absent operand). May be called
// from several threads at once, so it must not change what it captured.
using Function =
    std::function<void(const ops::Args& args, const Tensors& inputs, Tensors& results)>;

at::ScalarType scalar_type(ir::DType dtype);
at::Tensor wrap(const void* memory, const ir::Type& type);

// Where a call's results and temporaries lie while it runs, and whose code it is.
enum class Memory {
  planned,  // in the arena. The call is made now, on zeros, to learn what it allocates, which takes
            // as long as a run (see Batch); calls of equal text share what was learned.
  torchs,   // wherever torch puts them. For calls that are seldom made.
  users,    // as torchs, for the user's own code, which runs as outside of a program: with
            // denormals, and under no program's settings. It may run programs itself.
};

// The operands and results whose first dimension is a batch of entries that are computed alike: of
// a large batch it is enough to make the call for a few entries. The function must be one for any
// batch then, so it takes sizes from its inputs. If torch allocates something else for the whole
// batch after all, runs take that from torch's own memory.
struct Batch {
  std::vector<size_t> inputs, outputs;  // none: no batch
};

// A kernel that makes this call. `name` stands in error messages; torch's errors become user
// errors.
ops::Prepared prepare_call(const ops::Call& call, std::string name, Function function,
                           const Batch& batch = {}, Memory memory = Memory::planned);

// While it exists, calls of this thread use no other thread: where bits would depend on how many.
class SingleThreadedCalls {
 public:
  SingleThreadedCalls();
  ~SingleThreadedCalls();
  SingleThreadedCalls(const SingleThreadedCalls&) = delete;
  SingleThreadedCalls& operator=(const SingleThreadedCalls&) = delete;

 private:
  bool before_;
};

// While it exists, this thread calls ATen below autograd, autocast and Python modes, with this many
// threads, or with Settings::library_threads.
class CallState {
 public:
  explicit CallState(int threads);
  ~CallState();
  CallState(const CallState&) = delete;
  CallState& operator=(const CallState&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  c10::AutoGradMode grad_;
  int threads_before_ = 0;  // 0: not changed
  int mkl_threads_before_ = 0;
};

}  // namespace poptorch::aten
