// What each call of an executor asks of Python objects: whether they have changed, in one look.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace poptorch::python {

// Lets Python's garbage collector see what an object refers to: a module may hold its executor.
template <typename T>
pybind11::custom_type_setup collected() {
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject& type = heap_type->ht_type;
    type.tp_flags |= Py_TPFLAGS_HAVE_GC;
    type.tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      if (!pybind11::detail::is_holder_constructed(self)) return 0;
      return pybind11::cast<T&>(pybind11::handle(self)).traverse(visit, arg);
    };
    type.tp_clear = [](PyObject* self) {
      if (!pybind11::detail::is_holder_constructed(self)) return 0;
      pybind11::cast<T&>(pybind11::handle(self)).clear();
      return 0;
    };
  });
}

// What dicts and lists held when they were last noted: the same objects, in the same order; of
// some dicts only what single keys led to. And the classes of objects.
class ItemWatch {
 public:
  // `containers`: dicts and lists. `places`: pairs (dict, key), where the key may be missing.
  // `typed`: objects that keep their class.
  ItemWatch(const pybind11::sequence& containers, const pybind11::sequence& places,
            const pybind11::sequence& typed);

  // Whether everything is as it was when it was noted.
  bool is_same() const;
  // Takes everything as it is.
  void note();

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Container {
    pybind11::object object;
    bool is_dict;
    std::vector<pybind11::object> items;  // of a dict keys and values in turn
  };
  struct Place {
    pybind11::object dict, key, value;  // without a value: the key was missing
  };

  struct Typed {
    pybind11::object object, type;
  };

  std::vector<Container> containers_;
  std::vector<Place> places_;
  std::vector<Typed> typed_;
};

}  // namespace poptorch::python
