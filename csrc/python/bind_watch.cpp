// poptorch._C: what each call checks of a module's tensors and tables.
#include "python/bind.h"
#include "python/watch.h"

namespace poptorch::python {

namespace {

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

void bind_watch(py::module_& module) {
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
