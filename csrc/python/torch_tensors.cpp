#include "python/torch_tensors.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DefaultDtype.h>
#include <pybind11/stl.h>

#include <memory>
#include <mutex>

#include "python/call_checks.h"
#include "python/torch_values.h"
#include "run/memory/shared_pages.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

using run::HostPool;

// The type and the sizes of a dense tensor on the CPU.
class TensorKind {
 public:
  TensorKind(const py::object& dtype, std::vector<int64_t> sizes);

  // Whether an object is a tensor of this kind, and of the class torch.Tensor or Parameter.
  bool matches(py::handle object) const;
  // Where a tensor of this kind lies, if a program can read it there: its elements lie one after
  // the other. Null: its kind differs, it has to be copied, or it has no memory.
  const void* address(py::handle object, bool may_require_grad) const;
  // An uninitialized contiguous one for a result.
  py::object empty(HostPool& pool) const;

 private:
  c10::ScalarType dtype_;
  std::vector<int64_t> sizes_;
};

// Tensors as they were when they were last noted: where each lies and how often it was written;
// its type, and whether and how it gets a gradient. The tensors are found by way of their Python
// objects in each look, which may be given others (swap_tensors, `data = ...`).
//
// Storages are kept alive: a new storage could get the address of one that is gone.
class TensorWatch {
 public:
  enum Change : int { written = 1, converted = 2 };

  // `tensors`: objects of torch.Tensor. `has_gradients`: requires_grad and the table of hooks (not
  // what it holds) are part of the type.
  TensorWatch(const py::sequence& tensors, bool has_gradients);

  // The sum of the changes of any tensor since they were noted.
  int look() const;
  // Takes all tensors as they are, as far as these changes go.
  void note(int changes);

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Known {
    py::object tensor, hooks;  // hooks: the dict that torch keeps them in, none at first
    c10::Storage storage;
    uint32_t version = 0;
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;
    caffe2::TypeMeta dtype;
    bool requires_grad = false;
  };

  int changes(const Known& known) const;
  std::vector<Known> known_;
  bool has_gradients_;
};

// `autocast`: the type in which torch.autocast lets the CPU compute, or None where it is off.
bool has_settings(const py::object& autocast, const py::object& default_dtype) {
  if (at::autocast::is_autocast_enabled(at::kCPU) == autocast.is_none()) return false;
  if (!autocast.is_none() &&
      at::autocast::get_autocast_dtype(at::kCPU) != to_scalar_type(autocast)) {
    return false;
  }
  return c10::get_default_dtype_as_scalartype() == to_scalar_type(default_dtype);
}

c10::TensorImpl& unpacked(const py::object& tensor) {
  return *THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl();
}

// Tensors of inference mode do not count how often they are written.
uint32_t version_of(c10::TensorImpl& impl) {
  return impl.is_inference() ? 0 : impl.version_counter().current_version();
}

PyObject* hooks_of(const py::object& tensor) {
  return reinterpret_cast<THPVariable*>(tensor.ptr())->backward_hooks;
}

TensorKind::TensorKind(const py::object& dtype, std::vector<int64_t> sizes)
    : dtype_(to_scalar_type(dtype)), sizes_(std::move(sizes)) {}

bool TensorKind::matches(py::handle object) const {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (type != THPVariableClass && type != ParameterClass) return false;
  const c10::TensorImpl& impl = *THPVariable_Unpack(object.ptr()).unsafeGetTensorImpl();
  return impl.is_cpu() && impl.layout() == c10::kStrided && !impl.is_nested() &&
         impl.dtype() == c10::scalarTypeToTypeMeta(dtype_) && impl.sizes() == sizes_;
}

const void* TensorKind::address(py::handle object, bool may_require_grad) const {
  if (!matches(object)) return nullptr;
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  if (!tensor.is_contiguous() || tensor.is_neg() || tensor.is_conj()) return nullptr;
  if (!may_require_grad && tensor.requires_grad()) return nullptr;
  return tensor.const_data_ptr();
}

py::object TensorKind::empty(HostPool& pool) const {
  return from_tensor(empty_result(pool, dtype_, sizes_, c10::contiguous_strides(sizes_)));
}

TensorWatch::TensorWatch(const py::sequence& tensors, bool has_gradients)
    : has_gradients_(has_gradients) {
  for (const py::handle tensor : tensors) {
    INTERNAL_CHECK(THPVariable_Check(tensor.ptr()), "a tensor is expected");
    known_.emplace_back();
    known_.back().tensor = py::reinterpret_borrow<py::object>(tensor);
  }
  note(written | converted);
}

int TensorWatch::changes(const Known& known) const {
  c10::TensorImpl& impl = unpacked(known.tensor);
  int found = 0;
  if (version_of(impl) != known.version ||
      impl.unsafe_storage().unsafeGetStorageImpl() != known.storage.unsafeGetStorageImpl() ||
      impl.storage_offset() != known.offset || impl.strides() != known.strides) {
    found |= written;
  }
  if (impl.dtype() != known.dtype || impl.sizes() != known.sizes) {
    found |= converted;
  }
  if (has_gradients_ && (impl.requires_grad() != known.requires_grad ||
                         hooks_of(known.tensor) != known.hooks.ptr())) {
    found |= converted;
  }
  return found;
}

int TensorWatch::look() const {
  int found = 0;
  for (const Known& known : known_) found |= changes(known);
  return found;
}

void TensorWatch::note(int changes) {
  for (Known& known : known_) {
    c10::TensorImpl& impl = unpacked(known.tensor);
    if ((changes & written) != 0) {
      known.storage = impl.unsafe_storage();
      known.version = version_of(impl);
      known.offset = impl.storage_offset();
      known.strides = impl.strides().vec();
    }
    if ((changes & converted) != 0) {
      known.dtype = impl.dtype();
      known.sizes = impl.sizes().vec();
      known.requires_grad = impl.requires_grad();
      known.hooks = py::reinterpret_borrow<py::object>(hooks_of(known.tensor));
    }
  }
}

int TensorWatch::traverse(visitproc visit, void* arg) const {
  for (const Known& known : known_) {
    Py_VISIT(known.tensor.ptr());
    Py_VISIT(known.hooks.ptr());
  }
  return 0;
}

void TensorWatch::clear() {
  const std::vector<Known> known = std::move(known_);
  known_.clear();
}

// Stands between a storage and its allocator.
struct Guard {
  c10::DataPtr memory;
  size_t bytes = 0;
};

void release(void* context) {
  const std::unique_ptr<Guard> guard(static_cast<Guard*>(context));
  auto* begin = static_cast<std::byte*>(guard->memory.get());
  // Memory that the system does not make plain again is better lost than handed to others.
  if (!run::unshare({begin, begin + guard->bytes})) guard->memory.release_context();
}

c10::StorageImpl& storage_at(uintptr_t address) {
  return *reinterpret_cast<c10::StorageImpl*>(address);
}

// Memory of a pool, which it keeps alive.
struct Block {
  std::shared_ptr<HostPool> pool;
  void* data;
  size_t bytes;
};

void give_back(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  block->pool->give_back(block->data, block->bytes);
}

}  // namespace

bool allow_sharing(uintptr_t address) {
  c10::StorageImpl& storage = storage_at(address);
  const c10::DataPtr& memory = storage.data_ptr();
  if (memory.get_deleter() == &release) return true;
  if (memory.get_deleter() != c10::GetDefaultCPUAllocator()->raw_deleter()) return false;
  auto guard = std::make_unique<Guard>();
  guard->bytes = storage.nbytes();
  void* data = memory.get();
  const c10::Device device = memory.device();
  Guard* context = guard.release();
  context->memory = storage.set_data_ptr({data, context, &release, device});
  return true;
}

void allow_resizing(uintptr_t address) {
  c10::StorageImpl& storage = storage_at(address);
  storage.set_allocator(c10::GetDefaultCPUAllocator());
  storage.set_resizable(true);
}

at::Tensor empty_result(HostPool& pool, c10::ScalarType dtype, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  if (!HostPool::has(bytes)) return at::detail::empty_strided_cpu(sizes, strides, dtype);
  auto block = std::make_unique<Block>(Block{pool.shared_from_this(), pool.take(bytes), bytes});
  void* const data = block->data;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(data, block.release(), &give_back, c10::Device(c10::kCPU)),
      c10::GetDefaultCPUAllocator(), true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

std::array<int32_t, 4> drawn_random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t seed = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  return {static_cast<int32_t>(seed), static_cast<int32_t>(seed >> 32), 0, 0};
}

void bind_torch_tensors(py::module_& module) {
  py::class_<TensorKind>(module, "TensorKind", "Type and sizes of a dense tensor on the CPU.")
      .def(py::init<const py::object&, std::vector<int64_t>>(), py::arg("dtype"),
           py::arg("sizes"))
      .def("matches", &TensorKind::matches, py::arg("object"),
           "Whether an object has this kind, and the class torch.Tensor or torch.nn.Parameter.")
      .def("empty", &TensorKind::empty, py::arg("pool"),
           "An uninitialized contiguous one for a result; if it is large, in memory of the pool, "
           "which is used again once the tensor is freed.");
  module.def(
      "all_match",
      [](const py::list& kinds, const py::tuple& objects) {
        INTERNAL_CHECK(kinds.size() == objects.size(), kinds.size(), " kinds, ", objects.size(),
                       " objects");
        for (size_t i = 0; i < kinds.size(); ++i) {
          if (!kinds[i].cast<const TensorKind&>().matches(objects[i])) return false;
        }
        return true;
      },
      py::arg("kinds"), py::arg("objects"), "Whether each object matches its `TensorKind`.");
  module.def(
      "addresses",
      [](const py::list& kinds, const py::list& tensors, bool may_require_grad) {
        INTERNAL_CHECK(kinds.size() == tensors.size(), kinds.size(), " kinds, ", tensors.size(),
                       " tensors");
        py::list found(kinds.size());
        for (size_t i = 0; i < kinds.size(); ++i) {
          const auto& kind = kinds[i].cast<const TensorKind&>();
          found[i] = py::int_(
              reinterpret_cast<uintptr_t>(kind.address(tensors[i], may_require_grad)));
        }
        return found;
      },
      py::arg("kinds"), py::arg("tensors"), py::arg("may_require_grad"),
      "Where each tensor lies; 0: it has to be copied before a program can read it.");
  module.def("drawn_random_state", &drawn_random_state,
             "A random state with a seed from torch's own generator.");
  module.def("has_settings", &has_settings, py::arg("autocast"), py::arg("default"),
             "Whether torch.autocast lets the CPU compute in this type (None: it is off), and this "
             "is the type of tensors that are made without one.");
  py::class_<TensorWatch>(module, "TensorWatch", collected<TensorWatch>(),
                          "Finds what changed of tensors since it was made, or last noted it.")
      .def(py::init<const py::sequence&, bool>(), py::arg("tensors"), py::arg("has_gradients"))
      .def("look", &TensorWatch::look,
           "The sum of `WRITTEN` (values, or where they lie) and `CONVERTED` (dtype, shape; with "
           "gradients also requires_grad and hooks), if any tensor changed so.")
      .def("note", &TensorWatch::note, py::arg("changes"),
           "Takes all tensors as they are, as far as these changes go.")
      .def_property_readonly_static("WRITTEN",
                                    [](const py::object&) { return +TensorWatch::written; })
      .def_property_readonly_static("CONVERTED",
                                    [](const py::object&) { return +TensorWatch::converted; });
}

}  // namespace poptorch::python
