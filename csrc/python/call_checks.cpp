#include "python/call_checks.h"

#include <pybind11/stl.h>

#include "python/bind.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

bool is_item(const py::object& item, PyObject* object) { return item.ptr() == object; }

}  // namespace

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
