// Calls of graphs of torch.compile: a program with its arguments and results as torch's tensors,
// and the node of autograd that joins a forward and a backward graph. No Python runs in a call.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/headeronly/version.h>

#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "compile.h"
#include "python/bind.h"
#include "python/raised.h"
#include "python/signal_watch.h"
#include "python/torch_tensors.h"
#include "python/torch_values.h"
#include "run/memory/host_pool.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

using at::Tensor;
using run::HostPool;

// Whether operations of torch compute values in this thread: they are not recorded or transformed.
bool is_plain() {
  return (c10::impl::tls_local_dispatch_key_set().included_ - c10::default_included_set).empty();
}

// A tensor without gaps.
struct Form {
  // `row`: stream (-1: none), dtype on the device and in the graph, sizes, strides.
  explicit Form(const py::tuple& row)
      : stream(row[0].cast<int64_t>()),
        dtype(to_scalar_type(row[1])),
        given(to_scalar_type(row[2])),
        sizes(row[3].cast<std::vector<int64_t>>()),
        strides(row[4].cast<std::vector<int64_t>>()) {
    bytes = c10::elementSize(dtype);
    for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  }

  // Whether a tensor has values of this type in the host's memory, and the sizes.
  bool has_sizes(const Tensor& tensor, c10::ScalarType type) const;
  // Whether such a tensor has the strides.
  bool has_strides(const Tensor& tensor) const;

  int64_t stream;  // -1: the program does not use it
  c10::ScalarType dtype, given;
  std::vector<int64_t> sizes, strides;
  size_t bytes;
};

bool Form::has_sizes(const Tensor& tensor, c10::ScalarType type) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return impl.is_cpu() && impl.layout() == c10::kStrided && !impl.is_nested() &&
         !impl.is_python_dispatch() && !tensor.is_neg() && !tensor.is_conj() &&
         impl.dtype() == c10::scalarTypeToTypeMeta(type) && impl.sizes() == sizes &&
         (bytes == 0 || tensor.const_data_ptr() != nullptr);
}

bool Form::has_strides(const Tensor& tensor) const {
  const c10::IntArrayRef found = tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (found[i] != strides[i] && sizes[i] != 1 && bytes != 0) return false;
  }
  return true;
}

// A program of a graph.
class GraphProgram {
 public:
  GraphProgram(py::object executable, const std::vector<py::tuple>& arguments,
               const py::list& results, py::object convert, py::list recordings);

  // Whether it can run here: torch computes values, and no recording is active.
  bool can_run() const { return is_plain() && PyList_GET_SIZE(recordings_.ptr()) == 0; }
  // Each run gets a random state in this stream.
  void draw_into(size_t stream) { random_stream_ = stream; }
  // The results; undefined where one is None. With Python's lock, which is released for the run.
  Tensors run(const Tensors& arguments);

 private:
  struct Result {
    std::optional<Form> computed;
    int64_t argument = -1;  // which it is, if it is not computed
    bool is_converted = false;
    int64_t result = -1;  // which it is, if it is neither; -1: None
  };

  Tensor converted(size_t index, const Tensor& argument) const;

  const py::object owner_;
  Compiled& executable_;
  std::vector<Form> arguments_;
  std::vector<Result> results_;
  std::optional<size_t> random_stream_;
  const py::object convert_, recordings_;
  const std::shared_ptr<HostPool> pool_ = HostPool::make();
};

GraphProgram::GraphProgram(py::object executable, const std::vector<py::tuple>& arguments,
                           const py::list& results, py::object convert, py::list recordings)
    : owner_(std::move(executable)),
      executable_(owner_.cast<Compiled&>()),
      convert_(std::move(convert)),
      recordings_(std::move(recordings)) {
  for (const py::tuple& row : arguments) arguments_.emplace_back(row);
  for (const py::handle object : results) {
    Result& result = results_.emplace_back();
    if (object.is_none()) continue;
    const auto row = object.cast<py::tuple>();
    if (row.size() == 1) {
      result.result = row[0].cast<int64_t>();
      continue;
    }
    if (row.size() == 2) {
      std::tie(result.argument, result.is_converted) = row.cast<std::pair<int64_t, bool>>();
      continue;
    }
    result.computed.emplace(row);
    pool_->expect(result.computed->bytes);
  }
}

// An int64 tensor as int32; undefined if a value does not fit.
Tensor narrowed(const Tensor& wide) {
  Tensor narrow = at::detail::empty_strided_cpu(wide.sizes(), wide.strides(), c10::kInt);
  const auto* from = static_cast<const int64_t*>(wide.const_data_ptr());
  auto* to = static_cast<int32_t*>(narrow.mutable_data_ptr());
  int64_t lost = 0;
  for (int64_t i = 0; i < narrow.numel(); ++i) {
    to[i] = static_cast<int32_t>(from[i]);
    lost |= from[i] ^ to[i];
  }
  return lost == 0 ? narrow : Tensor();
}

// The same memory and count of changes as a tensor without a node of autograd. A node must not keep
// a tensor that leads to it.
Tensor alias_of(const Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return Tensor(impl.shallow_copy_and_detach(impl.version_counter(), true));
}

// An argument as the program can read it.
Tensor GraphProgram::converted(size_t index, const Tensor& argument) const {
  const Form& form = arguments_[index];
  const bool is_wide = form.dtype == c10::kInt && form.has_sizes(argument, c10::kLong);
  if (is_wide || form.has_sizes(argument, form.dtype)) {
    Tensor dense = argument;
    if (!form.has_strides(argument)) {
      const at::NoGradGuard no_grad;
      dense = at::detail::empty_strided_cpu(form.sizes, form.strides, argument.scalar_type());
      dense.copy_(argument);
    }
    if (is_wide) dense = narrowed(dense);
    if (dense.defined()) return dense;
  }
  const Tensor found = to_tensor(convert_(index, from_tensor(argument)));
  INTERNAL_CHECK(form.has_sizes(found, form.dtype) && form.has_strides(found), "argument ", index,
                 " does not have the sizes of its graph");
  return found;
}

Tensors GraphProgram::run(const Tensors& arguments) {
  INTERNAL_CHECK(arguments.size() == arguments_.size(), arguments.size(), " arguments, expected ",
                 arguments_.size());
  Tensors own = arguments, values(results_.size());
  std::vector<void*> host(executable_.streams().size());
  std::array<int32_t, 4> random_state;
  if (random_stream_) {
    random_state = drawn_random_state();
    host[*random_stream_] = random_state.data();
  }
  for (size_t i = 0; i < own.size(); ++i) {
    const Form& form = arguments_[i];
    if (form.stream < 0 && form.dtype == form.given) continue;
    own[i] = converted(i, arguments[i]);
    if (form.stream >= 0) {
      host[static_cast<size_t>(form.stream)] = const_cast<void*>(own[i].const_data_ptr());
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Result& result = results_[i];
    if (result.computed) {
      const Form& form = *result.computed;
      values[i] = empty_result(*pool_, form.dtype, form.sizes, form.strides);
      host[static_cast<size_t>(form.stream)] = values[i].mutable_data_ptr();
    } else if (result.argument >= 0) {
      const auto from = static_cast<size_t>(result.argument);
      values[i] = (result.is_converted ? own : arguments)[from];
    } else if (result.result >= 0) {
      values[i] = alias_of(values[static_cast<size_t>(result.result)]);
    }
  }
  {
    const SignalWatch watch(executable_.is_long());
    const py::gil_scoped_release released;
    executable_.run(host, at::get_num_threads(), [&] { watch.check(); });
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const std::optional<Form>& computed = results_[i].computed;
    if (computed && computed->given != computed->dtype) values[i] = values[i].to(computed->given);
  }
  return values;
}

// A graph of torch.compile, which has a program after its first call.
class Graph {
 public:
  // `graph`: a callable of the list of the arguments, with an attribute `program`.
  explicit Graph(py::object graph) : graph_(std::move(graph)) {}

  Tensors run(const Tensors& arguments) {
    if (program_ == nullptr) {
      owner_ = graph_.attr("program");
      if (!owner_.is_none()) program_ = &owner_.cast<GraphProgram&>();
    }
    if (program_ != nullptr && program_->can_run()) return program_->run(arguments);
    return to_tensors(graph_(from_tensors(arguments)));
  }

 private:
  py::object graph_, owner_;
  GraphProgram* program_ = nullptr;
};

// A graph, or a forward and a backward graph. The results of a forward graph are those that the
// caller gets, and after them the first arguments of the backward graph.
struct Passes {
  Graph forward;
  std::optional<Graph> backward;
  py::object backward_without;  // of Python: makes a backward graph that lacks some gradients
  py::object backward_once;     // of Python, for gradients that require grad
  size_t returned = 0;
  std::vector<bool> is_reached;   // of each argument: it gets a gradient
  std::vector<size_t> with_grad;  // results that require grad
  Tensors zeros;                  // gradients of these that are zero, once they are needed
  std::vector<bool> is_absent;    // gradients of these that the first backward pass lacked
  std::optional<Graph> lean;      // the backward graph without them
};

// The last reference may be that of a node that ends in a thread without Python's lock.
void free_with_lock(Passes* passes) {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire lock;
  delete passes;
}

class GraphBackward : public torch::autograd::Node {
 public:
  GraphBackward(std::shared_ptr<Passes> passes, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), passes_(std::move(passes)) {}

  void save(const Tensors& values) {
    saved_.reserve(values.size() - passes_->returned);
    for (size_t i = passes_->returned; i < values.size(); ++i) {
      saved_.emplace_back(values[i], false);
    }
  }

  std::string name() const override { return "GraphBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (torch::autograd::SavedVariable& variable : saved_) variable.reset_data();
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    throw_user_error("[compile] compiled autograd cannot trace the backward pass of a graph that "
                     "poptorch compiled: it is compiled already. Leave "
                     "torch._dynamo.config.compiled_autograd off.");
  }

 protected:
  Tensors apply(Tensors&& gradients) override;

 private:
  Tensors run(Tensors arguments, const Tensors& gradients) const;
  Tensor zeros(size_t index) const;

  const std::shared_ptr<Passes> passes_;
  std::vector<torch::autograd::SavedVariable> saved_;
};

Tensors GraphBackward::apply(Tensors&& gradients) {
  Tensors arguments;
  arguments.reserve(saved_.size() + gradients.size());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const torch::autograd::SavedVariable& variable : saved_) {
      arguments.push_back(variable.unpack(getptr()));
    }
  }
  const py::gil_scoped_acquire lock;
  try {
    return run(std::move(arguments), gradients);
  } catch (const c10::Error&) {
    throw;
  } catch (...) {
    // Torch hands an error of Python on to the caller of backward() as it is.
    set_raised(std::current_exception());
    python_error error;
    error.persist();
    throw error;
  }
}

// Whether none of the absent gradients is there.
bool lacks(const std::vector<bool>& is_absent, const Tensors& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (is_absent[i] && gradients[i].defined()) return false;
  }
  return true;
}

// With Python's lock. `arguments`: those before the gradients.
Tensors GraphBackward::run(Tensors arguments, const Tensors& gradients) const {
  Passes& passes = *passes_;
  const bool is_once = at::GradMode::is_enabled();
  if (!is_once && passes.is_absent.empty()) {
    py::list absent;
    for (size_t i = 0; i < gradients.size(); ++i) {
      passes.is_absent.push_back(!gradients[i].defined());
      if (!gradients[i].defined()) absent.append(i);
    }
    if (!absent.empty()) passes.lean.emplace(passes.backward_without(absent));
  }
  const bool is_lean = !is_once && passes.lean && lacks(passes.is_absent, gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (is_lean && passes.is_absent[i]) continue;
    arguments.push_back(gradients[i].defined() ? gradients[i] : zeros(i));
  }
  if (is_once) return to_tensors(passes.backward_once(from_tensors(arguments)));
  return (is_lean ? *passes.lean : *passes.backward).run(arguments);
}

// The gradient of a result without one. The program only reads it.
Tensor GraphBackward::zeros(size_t index) const {
  if (!is_plain()) return input_metadata(index).zeros_like();
  Tensor& known = passes_->zeros[index];
  if (!known.defined()) known = input_metadata(index).zeros_like();
  return known;
}

class GraphCall {
 public:
  explicit GraphCall(py::object forward)
      : passes_(new Passes{Graph(std::move(forward))}, &free_with_lock) {}

  void differentiate(py::object backward, py::object backward_without, py::object backward_once,
                     size_t returned, std::vector<bool> is_reached,
                     std::vector<size_t> with_grad) {
    passes_->backward.emplace(std::move(backward));
    passes_->backward_without = std::move(backward_without);
    passes_->backward_once = std::move(backward_once);
    passes_->returned = returned;
    passes_->is_reached = std::move(is_reached);
    passes_->zeros.resize(with_grad.size());
    passes_->with_grad = std::move(with_grad);
  }

  py::tuple call(const py::args& objects) const;

 private:
  // Lets results with grad have a node that leads to the arguments.
  void add_node(const Tensors& arguments, const Tensors& values) const;

  const std::shared_ptr<Passes> passes_;
};

void GraphCall::add_node(const Tensors& arguments, const Tensors& values) const {
  torch::autograd::edge_list edges;
  edges.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    edges.push_back(passes_->is_reached[i] ? torch::autograd::impl::gradient_edge(arguments[i])
                                           : torch::autograd::Edge());
  }
  const auto node = c10::make_intrusive<GraphBackward>(passes_, std::move(edges));
  for (const size_t index : passes_->with_grad) {
    torch::autograd::set_history(values[index], node);
  }
  node->save(values);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  torch::autograd::fire_node_creation_hooks(node);
#endif
}

py::tuple GraphCall::call(const py::args& objects) const {
  const Tensors arguments = to_tensors(objects);
  const Tensors values = passes_->forward.run(arguments);
  size_t returned = values.size();
  if (passes_->backward) {
    returned = passes_->returned;
    try {
      add_node(arguments, values);
    } catch (python_error& error) {  // of a hook
      error.restore();
      throw_raised();
    }
  }
  py::tuple results(returned);
  for (size_t i = 0; i < returned; ++i) results[i] = from_tensor(values[i]);
  return results;
}

}  // namespace

void bind_graph_call(py::module_& module) {
  py::class_<GraphProgram>(module, "GraphProgram", "A program of a graph, with tensors.")
      .def(py::init<py::object, std::vector<py::tuple>, py::list, py::object, py::list>(),
           py::arg("executable"), py::arg("arguments"), py::arg("results"), py::arg("convert"),
           py::arg("recordings"))
      .def("draw_into", &GraphProgram::draw_into, py::arg("stream"),
           "Each run gets a random state in this stream.")
      .def(
          "run",
          [](GraphProgram& self, const py::list& arguments) -> py::object {
            if (!self.can_run()) return py::none();
            return from_tensors(self.run(to_tensors(arguments)));
          },
          py::arg("arguments"), "The results; None: torch does not compute values now.");
  py::class_<GraphCall>(module, "GraphCall", "A function of a graph's arguments.")
      .def(py::init<py::object>(), py::arg("forward"))
      .def("differentiate", &GraphCall::differentiate, py::arg("backward"),
           py::arg("backward_without"), py::arg("backward_once"), py::arg("returned"),
           py::arg("is_reached"), py::arg("with_grad"))
      .def("__call__", &GraphCall::call);
}

}  // namespace poptorch::python
