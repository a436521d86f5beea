#include "kernels/aten/call.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "kernels/aten/allocator.h"
#include "kernels/gemm/blas.h"
#include "ops/op_def.h"
#include "support/cpu/float_mode.h"
#include "support/error.h"
#include "support/memory/align.h"
#include "support/parallel.h"
#include "support/settings/settings.h"
#include "support/settings/switches.h"

namespace poptorch::aten {
namespace {

using ops::Args;
using ops::Call;

// torch cuts element-wise work from here on.
constexpr int64_t parallel_numel = 32768;

constexpr c10::DispatchKeySet kIncluded({c10::DispatchKey::BackendSelect});
constexpr c10::DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::default_excluded_set;

// What every run of one instruction shares.
struct Prepared {
  std::string name;
  Function function;
  std::vector<ir::Type> inputs;
  std::vector<bool> present;
  std::vector<ir::Type> outputs;
  bool is_large = false;  // enough elements for torch to use several threads
  bool is_users = false;  // see Memory::users
  std::shared_ptr<const AllocationPlan> plan;
};

// What a program sets for its own thread, put back while the user's code runs.
class OutsideProgram {
 public:
  OutsideProgram() : mode_(float_mode() & ~flush_bits), settings_(nullptr) {}

 private:
  FloatMode mode_;
  SettingsScope settings_;
};

Tensors wrap_inputs(const Prepared& prepared, const Args& args) {
  Tensors tensors;
  tensors.reserve(prepared.inputs.size());
  for (size_t i = 0; i < prepared.inputs.size(); ++i) {
    tensors.emplace_back();
    if (prepared.present[i]) tensors.back() = wrap(args.inputs[i], prepared.inputs[i]);
  }
  return tensors;
}

bool lies_as(const at::Tensor& tensor, const ir::Type& type) {
  if (tensor.scalar_type() != scalar_type(type.dtype)) return false;
  ir::Type actual{type.dtype, type.sizes, {}};
  actual.set_strides(tensor.strides().vec());
  return actual.strides == type.strides;
}

// Whether a result is in memory that a result yet to be copied will be written to.
bool is_in_the_way(const Prepared& prepared, const Args& args, const Tensors& results,
                   const at::Tensor& tensor) {
  const auto* begin = static_cast<const std::byte*>(tensor.storage().data());
  const auto* end = begin + tensor.storage().nbytes();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const auto* output = static_cast<const std::byte*>(args.outputs[i]);
    if (begin < output + prepared.outputs[i].bytes() && output < end) return true;
  }
  return false;
}

void check_sizes(const Prepared& prepared, const at::Tensor& result, size_t i) {
  const ir::Type& type = prepared.outputs[i];
  USER_CHECK(result.sizes() == at::IntArrayRef(type.sizes), "[", prepared.name, "] result ", i,
             " has sizes ", c10::str(result.sizes()), ", expected ",
             c10::str(at::IntArrayRef(type.sizes)),
             ". Sizes that depend on data cannot be compiled: use an op with fixed sizes.");
}

// Puts the results at their planned addresses. `recorder` is given in a dry run.
void deliver(const Prepared& prepared, const Args& args, Tensors& results, Recorder* recorder) {
  INTERNAL_CHECK(results.size() == prepared.outputs.size(), prepared.name, " gave ", results.size(),
                 " results, expected ", prepared.outputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    at::Tensor& result = results[i];
    const ir::Type& type = prepared.outputs[i];
    if (type.numel() == 0) {
      result.reset();
    } else if (result.defined()) {
      check_sizes(prepared, result, i);
      if (recorder == nullptr && result.data_ptr() == args.outputs[i] && lies_as(result, type)) {
        result.reset();
      } else if (recorder != nullptr && lies_as(result, type) && result.storage_offset() == 0 &&
                 result.storage().nbytes() == static_cast<size_t>(type.bytes()) &&
                 recorder->set_result(result.storage().data(), static_cast<int>(i))) {
        result.reset();  // as in runs, where it lies in its place already
      }
    } else {
      std::memset(args.outputs[i], 0, static_cast<size_t>(type.bytes()));  // no gradient: zeros
    }
  }
  // Only out of step with the recording can this happen.
  for (at::Tensor& result : results) {
    if (result.defined() && is_in_the_way(prepared, args, results, result)) result = result.clone();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined()) wrap(args.outputs[i], prepared.outputs[i]).copy_(results[i]);
  }
}

// The Python class of the exception that torch's own binding raises for an error.
std::string kind_of(const c10::Error& error) {
  if (dynamic_cast<const c10::NotImplementedError*>(&error)) return "NotImplementedError";
  if (dynamic_cast<const c10::IndexError*>(&error)) return "IndexError";
  if (dynamic_cast<const c10::ValueError*>(&error)) return "ValueError";
  if (dynamic_cast<const c10::TypeError*>(&error)) return "TypeError";
  return "";
}

struct Refusal {
  std::string message, kind;
};

// What torch refused, if it refused anything.
std::optional<Refusal> refusal_of(const auto& fn) {
  try {
    fn();
    return std::nullopt;
  } catch (const c10::Error& error) {
    return Refusal{error.what_without_backtrace(), kind_of(error)};
  } catch (const std::exception& error) {
    // oneDNN's pass through torch; its headers are not among those of torch.
    if (std::string_view(typeid(error).name()) != "N4dnnl5errorE") throw;
    return Refusal{error.what(), ""};
  }
}

// torch's errors say what is wrong with the arguments: they are the user's.
void with_user_errors(const Prepared& prepared, const auto& fn) {
  const std::optional<Refusal> refusal = refusal_of(fn);
  if (!refusal) return;
  constexpr std::string_view own_check = "aten::_functional_assert_async.msg";
  if (prepared.name == own_check) throw UserError(refusal->message);  // its words are complete
  std::string types;
  for (size_t i = 0; i < prepared.inputs.size(); ++i) {
    types += (i == 0 ? "" : ", ") + (prepared.present[i] ? prepared.inputs[i].text() : "none");
  }
  throw UserError(
      concat("[", prepared.name, "] PyTorch refused the call on (", types, "): ", refusal->message),
      refusal->kind);
}

bool& is_single_threaded() {
  thread_local bool is_single = false;
  return is_single;
}

int library_threads(int threads) {
  if (is_single_threaded() || !is_on("torch_threads")) return 1;
  const int fixed = settings().library_threads;
  return fixed > 0 ? fixed : threads;
}

void run(const Prepared& prepared, const Args& args) {
  const CallState state(args.threads);
  const bool is_parallel = prepared.is_large && !prepared.is_users;
  const FlushingPool pool(is_parallel ? library_threads(args.threads) : 1);
  std::optional<OutsideProgram> outside;
  if (prepared.is_users) outside.emplace();
  Replay replay(*prepared.plan, args.scratch, args.outputs);
  with_user_errors(prepared, [&] {
    const Tensors inputs = wrap_inputs(prepared, args);
    Tensors results;
    prepared.function(args, inputs, results);
    deliver(prepared, args, results, nullptr);
  });
  replay.check(prepared.name);
}

// Operands of a dry run: each its own part of the same zeros.
std::vector<void*> zeros(const Prepared& prepared, WorkMemory& memory) {
  size_t bytes = 0;
  std::vector<size_t> offsets;
  for (const ir::Type& type : prepared.inputs) {
    offsets.push_back(bytes);
    bytes += align_up(static_cast<size_t>(type.bytes()) + 1);
  }
  std::byte* begin = memory.zeros(bytes);
  std::vector<void*> inputs;
  for (size_t i = 0; i < offsets.size(); ++i) {
    inputs.push_back(prepared.present[i] ? begin + offsets[i] : nullptr);
  }
  return inputs;
}

// Blocks for the results of a dry run.
class Results {
 public:
  Results(const Prepared& prepared, WorkMemory& memory) : memory_(memory) {
    for (const ir::Type& type : prepared.outputs) {
      blocks_.push_back(memory_.take(static_cast<size_t>(type.bytes())));
    }
  }
  ~Results() {
    for (void* block : blocks_) memory_.give_back(block);
  }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  void* const* data() const { return blocks_.data(); }

 private:
  WorkMemory& memory_;
  std::vector<void*> blocks_;
};

Recording dry_run(const Prepared& prepared, int threads) {
  WorkMemory& memory = *WorkMemory::current();
  const std::vector<void*> inputs = zeros(prepared, memory);
  const Results outputs(prepared, memory);
  const Args args{inputs.data(), outputs.data(), nullptr, threads};
  const CallState state(threads);
  Recorder recorder(memory);
  const std::optional<Refusal> refusal = refusal_of([&] {
    const Tensors tensors = wrap_inputs(prepared, args);
    Tensors results;
    prepared.function(args, tensors, results);
    deliver(prepared, args, results, &recorder);
  });
  // Zeros may be no valid data (a matrix to invert): runs take torch's own memory.
  return refusal ? Recording{} : recorder.finish();
}

// The same for a batch of `count`.
Recording dry_run(const Prepared& prepared, const Batch& batch, int64_t count, int threads) {
  Prepared part = prepared;
  const auto shorten = [count](ir::Type& type) {
    const ir::Dims strides = type.actual_strides();
    type.sizes[0] = count;
    type.set_strides(strides);
  };
  for (const size_t i : batch.inputs) {
    if (i < part.inputs.size() && part.present[i]) shorten(part.inputs[i]);
  }
  for (const size_t i : batch.outputs) {
    if (part.outputs[i].numel() > 0) shorten(part.outputs[i]);
  }
  return dry_run(part, threads);
}

// What the call does for its whole batch, by what it does for a few entries.
std::optional<Recording> learn_from_few(const Prepared& prepared, const Batch& batch,
                                        int threads) {
  if (batch.inputs.empty()) return std::nullopt;
  // An entry for each thread at least, or some of them would take no memory.
  const int64_t count = prepared.inputs[batch.inputs[0]].sizes[0], few = threads, more = 2 * few;
  if (count < 2 * (few + more)) return std::nullopt;
  return extrapolate(dry_run(prepared, batch, few, threads), few,
                     dry_run(prepared, batch, more, threads), more, count);
}

AllocationPlan learn(const Prepared& prepared, const Batch& batch, int threads) {
  std::optional<WorkMemory> own;
  if (WorkMemory::current() == nullptr) own.emplace();
  const std::optional<Recording> recording = learn_from_few(prepared, batch, threads);
  return place(recording ? *recording : dry_run(prepared, threads));
}

// Without what the steps before wrote on it, such as its number in the schedule.
std::string call_text(const Call& call) {
  std::string text = concat(call.op.name, " ", call.threads);
  for (const auto& [name, value] : call.attrs()) {
    if (!ops::is_annotation(name)) text += concat(" ", name, "=", value.text());
  }
  for (size_t i = 0; i < call.in_count(); ++i) {
    text += call.has_in(i) ? concat(" ", call.in(i).text()) : " _";
  }
  for (const auto& result : call.op.results) text += " -> " + result->type.text();
  return text;
}

// Networks repeat layers, and a dry run takes as long as a run.
std::shared_ptr<const AllocationPlan> plan_of(const Call& call, const Prepared& prepared,
                                              const Batch& batch) {
  static std::mutex mutex;
  static auto* plans = new std::unordered_map<std::string, std::shared_ptr<const AllocationPlan>>;
  constexpr size_t most = 4096;
  const std::string text = call_text(call);
  {
    std::lock_guard lock(mutex);
    if (const auto found = plans->find(text); found != plans->end()) return found->second;
  }
  auto plan = std::make_shared<const AllocationPlan>(learn(prepared, batch, call.threads));
  std::lock_guard lock(mutex);
  if (plans->size() >= most) plans->clear();
  plans->emplace(text, plan);
  return plan;
}

}  // namespace

SingleThreadedCalls::SingleThreadedCalls()
    : before_(std::exchange(is_single_threaded(), true)) {}

SingleThreadedCalls::~SingleThreadedCalls() { is_single_threaded() = before_; }

CallState::CallState(int threads) : keys_(kIncluded, kExcluded), grad_(false) {
  const int before = at::get_num_threads();  // which sets it where the thread is new to torch
  threads = library_threads(threads);
  if (before == threads) return;
  // The calling thread's own setting, which torch and oneDNN read: at::set_num_threads would change
  // the process's.
  threads_before_ = before;
  omp_set_num_threads(threads);
  if (const auto set_mkl_threads = kernels::set_mkl_threads()) {
    mkl_threads_before_ = set_mkl_threads(threads);
  }
}

CallState::~CallState() {
  if (threads_before_ == 0) return;
  omp_set_num_threads(threads_before_);
  if (const auto set_mkl_threads = kernels::set_mkl_threads()) set_mkl_threads(mkl_threads_before_);
}

at::ScalarType scalar_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::boolean: return at::kBool;
    case ir::DType::u8: return at::kByte;
    case ir::DType::i8: return at::kChar;
    case ir::DType::i16: return at::kShort;
    case ir::DType::i32: return at::kInt;
    case ir::DType::i64: return at::kLong;
    case ir::DType::f16: return at::kHalf;
    case ir::DType::bf16: return at::kBFloat16;
    case ir::DType::f32: return at::kFloat;
    case ir::DType::f64: return at::kDouble;
  }
  throw_internal_error(__FILE__, __LINE__, "dtype", "not a dtype");
}

at::Tensor wrap(const void* memory, const ir::Type& type) {
  const auto options = at::TensorOptions().dtype(scalar_type(type.dtype)).device(at::kCPU);
  return at::for_blob(const_cast<void*>(memory), type.sizes)
      .strides(type.actual_strides())
      .options(options)
      .target_device(at::Device(at::kCPU))
      .make_tensor();
}

ops::Prepared prepare_call(const Call& call, std::string name, Function function,
                           const Batch& batch, Memory memory) {
  // Only a program that needs it puts the allocator in front of torch's.
  const bool is_planned = memory == Memory::planned && is_on("planned_calls") && install();
  auto prepared = std::make_shared<Prepared>();
  prepared->name = std::move(name);
  prepared->function = std::move(function);
  prepared->is_users = memory == Memory::users;
  for (size_t i = 0; i < call.in_count(); ++i) {
    prepared->present.push_back(call.has_in(i));
    prepared->inputs.push_back(call.has_in(i) ? call.in(i) : ir::Type{});
  }
  for (const auto& result : call.op.results) prepared->outputs.push_back(result->type);
  const auto is_large = [](const ir::Type& type) { return type.numel() >= parallel_numel; };
  prepared->is_large = std::any_of(prepared->inputs.begin(), prepared->inputs.end(), is_large) ||
                       std::any_of(prepared->outputs.begin(), prepared->outputs.end(), is_large);
  prepared->plan = is_planned ? plan_of(call, *prepared, batch)
                              : std::make_shared<const AllocationPlan>();
  const size_t scratch_bytes = prepared->plan->scratch_bytes;
  return {[prepared](const Args& args) { run(*prepared, args); }, scratch_bytes};
}

}  // namespace poptorch::aten
