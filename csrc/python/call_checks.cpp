#include "python/call_checks.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DefaultDtype.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/bind.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

c10::ScalarType scalar_type(const py::object& dtype) {
  INTERNAL_CHECK(THPDtype_Check(dtype.ptr()), "a torch.dtype is expected");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

// `autocast`: the type in which torch.autocast lets the CPU compute, or None where it is off.
bool has_settings(const py::object& autocast, const py::object& default_dtype) {
  if (at::autocast::is_autocast_enabled(at::kCPU) == autocast.is_none()) return false;
  if (!autocast.is_none() &&
      at::autocast::get_autocast_dtype(at::kCPU) != scalar_type(autocast)) {
    return false;
  }
  return c10::get_default_dtype_as_scalartype() == scalar_type(default_dtype);
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

bool is_item(const py::object& item, PyObject* object) { return item.ptr() == object; }

// Lets Python's garbage collector see what an object refers to: a module may hold its executor.
template <typename T>
py::custom_type_setup collected() {
  return py::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject& type = heap_type->ht_type;
    type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!py::detail::is_holder_constructed(self)) return 0;
      return py::cast<T&>(py::handle(self)).traverse(visit, arg);
    };
    type.tp_clear = [](PyObject* self) {
      if (py::detail::is_holder_constructed(self)) py::cast<T&>(py::handle(self)).clear();
      return 0;
    };
  });
}

}  // namespace

TensorKind::TensorKind(const py::object& dtype, std::vector<int64_t> sizes)
    : dtype_(scalar_type(dtype)), sizes_(std::move(sizes)) {}

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

py::object TensorKind::empty() const {
  return py::reinterpret_steal<py::object>(
      THPVariable_Wrap(at::empty(sizes_, c10::TensorOptions(dtype_))));
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

ItemWatch::ItemWatch(const py::sequence& containers, const py::sequence& places,
                     const py::sequence& typed) {
  for (const py::handle container : containers) {
    const bool is_dict = PyDict_Check(container.ptr());
    INTERNAL_CHECK(is_dict || PyList_Check(container.ptr()), "a dict or a list is expected");
    containers_.push_back({py::reinterpret_borrow<py::object>(container), is_dict, {}});
  }
  for (const py::handle place : places) {
    const auto [dict, key] = place.cast<std::pair<py::dict, py::object>>();
    places_.push_back({dict, key, {}});
  }
  for (const py::handle object : typed) {
    typed_.push_back({py::reinterpret_borrow<py::object>(object), {}});
  }
  note();
}

bool ItemWatch::is_same() const {
  for (const auto& [object, type] : typed_) {
    if (!type.is(py::type::handle_of(object))) return false;
  }
  for (const auto& [object, is_dict, items] : containers_) {
    const auto size = static_cast<Py_ssize_t>(items.size());
    PyObject* const container = object.ptr();
    if (is_dict) {
      if (2 * PyDict_GET_SIZE(container) != size) return false;
      PyObject *key = nullptr, *value = nullptr;
      Py_ssize_t position = 0;
      for (auto item = items.begin(); PyDict_Next(container, &position, &key, &value); item += 2) {
        if (!is_item(item[0], key) || !is_item(item[1], value)) return false;
      }
    } else {
      if (PyList_GET_SIZE(container) != size) return false;
      for (Py_ssize_t i = 0; i < size; ++i) {
        if (!is_item(items[i], PyList_GET_ITEM(container, i))) return false;
      }
    }
  }
  for (const auto& [dict, key, value] : places_) {
    PyObject* const now = PyDict_GetItemWithError(dict.ptr(), key.ptr());
    if (now == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (!is_item(value, now)) return false;
  }
  return true;
}

void ItemWatch::note() {
  // What is let go of may run code of its own: only when everything is noted.
  std::vector<py::object> before;
  for (auto& [object, is_dict, items] : containers_) {
    std::move(items.begin(), items.end(), std::back_inserter(before));
    items.clear();
    if (is_dict) {
      for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(object)) {
        items.push_back(py::reinterpret_borrow<py::object>(key));
        items.push_back(py::reinterpret_borrow<py::object>(value));
      }
    } else {
      for (const py::handle item : py::reinterpret_borrow<py::list>(object)) {
        items.push_back(py::reinterpret_borrow<py::object>(item));
      }
    }
  }
  for (auto& [dict, key, value] : places_) {
    before.push_back(std::move(value));
    value = py::reinterpret_borrow<py::object>(PyDict_GetItemWithError(dict.ptr(), key.ptr()));
    if (!value && PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  for (auto& [object, type] : typed_) {
    before.push_back(std::move(type));
    type = py::type::of(object);
  }
}

int ItemWatch::traverse(visitproc visit, void* arg) const {
  for (const auto& [object, type] : typed_) {
    Py_VISIT(object.ptr());
    Py_VISIT(type.ptr());
  }
  for (const auto& [object, is_dict, items] : containers_) {
    Py_VISIT(object.ptr());
    for (const py::object& item : items) Py_VISIT(item.ptr());
  }
  for (const auto& [dict, key, value] : places_) {
    Py_VISIT(dict.ptr());
    Py_VISIT(key.ptr());
    Py_VISIT(value.ptr());
  }
  return 0;
}

void ItemWatch::clear() {
  const std::vector<Container> containers = std::move(containers_);
  const std::vector<Place> places = std::move(places_);
  const std::vector<Typed> typed = std::move(typed_);
  containers_.clear();
  places_.clear();
  typed_.clear();
}

void bind_call_checks(py::module_& module) {
  py::class_<TensorKind>(module, "TensorKind", "Type and sizes of a dense tensor on the CPU.")
      .def(py::init<const py::object&, std::vector<int64_t>>(), py::arg("dtype"),
           py::arg("sizes"))
      .def("matches", &TensorKind::matches, py::arg("object"),
           "Whether it is such a tensor, of the class torch.Tensor or torch.nn.Parameter.")
      .def("empty", &TensorKind::empty, "An uninitialized contiguous one.");
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
  py::class_<ItemWatch>(module, "ItemWatch", collected<ItemWatch>(),
                        "Finds whether dicts and lists hold the same objects in the same order, "
                        "places of dicts the same object, and objects have the same class, as when "
                        "it was made or last noted them.")
      .def(py::init<const py::sequence&, const py::sequence&, const py::sequence&>(),
           py::arg("containers"), py::arg("places") = py::tuple(), py::arg("typed") = py::tuple())
      .def("is_same", &ItemWatch::is_same)
      .def("note", &ItemWatch::note, "Takes everything as it is.");
}

}  // namespace poptorch::python
