// Errors, attributes and types between C++ and Python.
#include <pybind11/stl.h>

#include <new>

#include "python/bind.h"
#include "python/raised.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

// The class is looked up when an error happens: poptorch.errors imports nothing of ours, but _C is
// imported before it.
void set_error(const char* what, const std::string& kind = "") {
  py::object error = py::reinterpret_borrow<py::object>(PyExc_RuntimeError)(what);
  try {
    const py::module_ errors = py::module_::import("poptorch.errors");
    if (kind.empty()) {
      error = errors.attr("Error")(what);
    } else {
      error = errors.attr("also")(py::module_::import("builtins").attr(kind.c_str()), what);
    }
  } catch (py::error_already_set&) {  // the message matters more than its class
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
}

}  // namespace

void throw_raised() { throw py::error_already_set(); }

void set_raised(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (py::error_already_set& raised) {
    raised.restore();
  } catch (const std::bad_alloc&) {
    set_error("[memory] the system has no memory left for this. Try a smaller batch or fewer "
              "replicas.", "MemoryError");
  } catch (const UserError& user) {
    set_error(user.what(), user.kind);
  } catch (const std::exception& other) {
    set_error(other.what());
  }
}

void bind_errors(py::module_&) {
  // Of this module's functions only: other extensions may mean something else by it.
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::bad_alloc&) {
      set_raised(error);
    }
  });
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const UserError&) {
      set_raised(error);
    } catch (const InternalError&) {
      set_raised(error);
    }
  });
}

namespace {

// `lists`: those around it.
ir::Attr to_attr(py::handle object, int lists) {
  if (object.is_none()) return {};
  if (py::isinstance<ir::DType>(object)) return object.cast<ir::DType>();
  if (py::isinstance<ir::GraphRef>(object)) return object.cast<ir::GraphRef>();
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  if (py::isinstance<py::int_>(object)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    USER_CHECK(overflow == 0, "[ir] attribute ", py::repr(object).cast<std::string>(),
               " does not fit 64 bits. Use a smaller number.");
    return int64_t{value};
  }
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    USER_CHECK(lists < ir::most_nested_lists, "[ir] an attribute has more than ",
               ir::most_nested_lists, " lists one in the other. Use flat lists.");
    ir::AttrList items;
    for (py::handle item : object) items.push_back(to_attr(item, lists + 1));
    return items;
  }
  throw_user_error(concat("[ir] an attribute cannot be ", py::repr(object).cast<std::string>(),
                          " of ", py::repr(py::type::of(object)).cast<std::string>(),
                          ". Use None, bool, int, float, str, DType, GraphRef or a list of them."));
}

}  // namespace

ir::Attrs to_attrs(const py::dict& items) {
  ir::Attrs attrs;
  for (const auto& [name, value] : items) attrs.set(name.cast<std::string>(), to_attr(value, 0));
  return attrs;
}

py::object from_attr(const ir::Attr& attr) {
  struct Converter {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool v) const { return py::bool_(v); }
    py::object operator()(int64_t v) const { return py::int_(v); }
    py::object operator()(double v) const { return py::float_(v); }
    py::object operator()(const std::string& v) const { return py::str(v); }
    py::object operator()(ir::DType v) const { return py::cast(v); }
    py::object operator()(const ir::GraphRef& v) const { return py::cast(v); }
    py::object operator()(const ir::AttrList& v) const {
      py::list items;
      for (const ir::Attr& item : v) items.append(from_attr(item));
      return std::move(items);
    }
  };
  return std::visit(Converter{}, attr.value);
}

ir::DType to_dtype(py::handle object) {
  if (py::isinstance<ir::DType>(object)) return object.cast<ir::DType>();
  return ir::dtype_from_name(object.cast<std::string>());
}

ir::Type to_type(py::handle object) {
  const auto pair = object.cast<py::tuple>();
  USER_CHECK(pair.size() == 2, "[ir] a type has ", pair.size(),
             " parts, it needs two. Give (dtype, sizes).");
  return {to_dtype(pair[0]), pair[1].cast<ir::Dims>(), {}};
}

py::tuple from_type(const ir::Type& type) {
  return py::make_tuple(ir::name_of(type.dtype), type.sizes);
}

}  // namespace poptorch::python
