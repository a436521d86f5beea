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

}  // namespace

TensorKind::TensorKind(const py::object& dtype, std::vector<int64_t> sizes)
    : dtype_(scalar_type(dtype)), sizes_(std::move(sizes)) {}

bool TensorKind::matches(py::handle object) const {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != THPVariableClass) return false;
  const c10::TensorImpl& impl = *THPVariable_Unpack(object.ptr()).unsafeGetTensorImpl();
  return impl.is_cpu() && impl.layout() == c10::kStrided && !impl.is_nested() &&
         impl.dtype() == c10::scalarTypeToTypeMeta(dtype_) && impl.sizes() == sizes_;
}

py::object TensorKind::empty() const {
  return py::reinterpret_steal<py::object>(
      THPVariable_Wrap(at::empty(sizes_, c10::TensorOptions(dtype_))));
}

void bind_call_checks(py::module_& module) {
  py::class_<TensorKind>(module, "TensorKind", "Type and sizes of a dense tensor on the CPU.")
      .def(py::init<const py::object&, std::vector<int64_t>>(), py::arg("dtype"),
           py::arg("sizes"))
      .def("matches", &TensorKind::matches, py::arg("object"),
           "Whether it is such a tensor, of the class torch.Tensor itself.")
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
  module.def("has_settings", &has_settings, py::arg("autocast"), py::arg("default"),
             "Whether torch.autocast lets the CPU compute in this type (None: it is off), and this "
             "is the type of tensors that are made without one.");
}

}  // namespace poptorch::python
