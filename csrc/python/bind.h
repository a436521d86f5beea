// What the bind_*.cpp files share. Only csrc/python sees pybind11.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>

#include "ir/graph.h"

namespace poptorch::python {

namespace py = pybind11;

// One function for each part of the core; module.cpp calls them all.
void bind_call_checks(py::module_& module);
void bind_device(py::module_& module);
void bind_errors(py::module_& module);
void bind_estimate(py::module_& module);
void bind_executable(py::module_& module);
void bind_graph_call(py::module_& module);
void bind_host(py::module_& module);
void bind_ir(py::module_& module);
void bind_ops(py::module_& module);
void bind_rewrite(py::module_& module);
void bind_tasks(py::module_& module);
void bind_tile_memory(py::module_& module);
void bind_torch_tensors(py::module_& module);

// Python objects of the IR. They keep the module alive; a graph or value that a pass erased must
// not be used any more.
struct GraphHandle {
  std::shared_ptr<ir::Module> module;
  ir::Graph* graph;
};

struct ValueHandle {
  std::shared_ptr<ir::Module> module;
  ir::Graph* graph;
  ir::Value* value;
};

// A number of any size.
inline py::object whole(const std::optional<double>& number) {
  return number ? py::object(py::int_(py::float_(*number))) : py::none();
}

// Of None, bool, int, float, str, DType, GraphRef and lists of them.
ir::Attrs to_attrs(const py::dict& items);
py::object from_attr(const ir::Attr& attr);
// `(dtype, sizes)` with a DType or its name.
ir::DType to_dtype(py::handle object);
ir::Type to_type(py::handle object);
py::tuple from_type(const ir::Type& type);

}  // namespace poptorch::python
