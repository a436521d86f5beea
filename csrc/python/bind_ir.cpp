// poptorch._C: modules, graphs and values, and how translate builds them.
#include <pybind11/stl.h>

#include <optional>

#include "ir/constants_file.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/op_def.h"
#include "python/bind.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

using SourceLocationTuple = std::optional<std::tuple<std::string, int, std::string>>;
using Names = std::optional<std::vector<std::optional<std::string>>>;

ir::SourceLocation to_source_location(const SourceLocationTuple& source) {
  if (!source) return {};
  return {std::get<0>(*source), std::get<1>(*source), std::get<2>(*source)};
}

py::list to_handles(const GraphHandle& self, const std::vector<ir::Value*>& values) {
  py::list out;
  for (ir::Value* value : values) out.append(ValueHandle{self.module, self.graph, value});
  return out;
}

ir::Value* to_value(const GraphHandle& self, py::handle object) {
  if (object.is_none()) return nullptr;
  const auto& handle = object.cast<const ValueHandle&>();
  INTERNAL_CHECK(handle.graph == self.graph, "value %", handle.value->name, " is of graph @",
                 handle.graph->name, ", it is used in @", self.graph->name);
  return handle.value;
}

// Raw bytes of a buffer (bytes, numpy array, memoryview), checked against the type.
py::buffer_info checked_buffer(const py::buffer& data, const ir::Type& type) {
  py::buffer_info info = data.request();
  int64_t stride = info.itemsize;
  for (py::ssize_t i = info.ndim; i-- > 0;) {
    USER_CHECK(info.shape[i] <= 1 || info.strides[i] == stride,
               "[constant] the data for ", type.text(), " is not row-major. Copy it first.");
    stride *= info.shape[i];
  }
  USER_CHECK(info.size * info.itemsize == type.bytes(), "[constant] the data has ",
             info.size * info.itemsize, " bytes, ", type.text(), " has ", type.bytes(),
             ". Make them equal.");
  return info;
}

py::list add_op(const GraphHandle& self, const std::string& name, const py::sequence& operands,
                const py::dict& attrs, const std::optional<py::sequence>& types,
                const SourceLocationTuple& source, const Names& names) {
  ir::Op op;
  op.name = ir::OpName(name);
  const ops::OpDef& row = ops::op_def(op.name);
  op.attrs = ops::shortest_attrs(row, to_attrs(attrs));
  op.source_location = to_source_location(source);
  for (py::handle operand : operands) op.operands.push_back(to_value(self, operand));
  std::vector<ir::Type> result_types;
  if (types) {
    ops::check_signature(row, op);
    for (py::handle type : *types) {
      result_types.push_back(to_type(type));
      ops::check_size(op.name, result_types.back());
    }
  } else {
    result_types = ops::infer(op);
  }
  std::vector<std::string> value_names;
  if (names) {
    for (const auto& given : *names) value_names.push_back(given.value_or(""));
  }
  const ir::Op* added = self.graph->append(op.name, std::move(op.operands), std::move(op.attrs),
                                           result_types, std::move(op.source_location),
                                           value_names);
  std::vector<ir::Value*> results;
  for (const auto& result : added->results) results.push_back(result.get());
  return to_handles(self, results);
}

ValueHandle add_constant_op(const GraphHandle& self, py::handle dtype, const ir::Dims& sizes,
                            const py::buffer& data, const SourceLocationTuple& source,
                            const std::string& name, const py::dict& annotations) {
  const ir::Type type{to_dtype(dtype), sizes, {}};
  const py::buffer_info info = checked_buffer(data, type);
  ir::Attrs attrs = self.module->constant_attrs(type, info.ptr);
  for (const auto& [key, value] : to_attrs(annotations)) attrs.set(key, value);
  const ir::Op* op =
      self.graph->append(ir::OpName("constant"), {}, std::move(attrs), {type},
                         to_source_location(source), {name});
  return {self.module, self.graph, op->result()};
}

GraphHandle find_graph(const std::shared_ptr<ir::Module>& module, const std::string& name) {
  ir::Graph* graph = module->find_graph(name);
  std::string names;
  for (const auto& known : module->graphs) names += concat(" @", known->name);
  USER_CHECK(graph != nullptr, "[ir] there is no graph @", name, ". The module has:", names, ".");
  return {module, graph};
}

ir::Level to_level(const std::string& name) {
  if (name == "any") return ir::Level::any;
  if (name == "translated") return ir::Level::translated;
  if (name == "placed") return ir::Level::placed;
  if (name == "lowered") return ir::Level::lowered;
  if (name == "scheduled") return ir::Level::scheduled;
  if (name == "planned") return ir::Level::planned;
  throw_user_error(concat("[verify] unknown level \"", name,
                          "\". Use any, translated, placed, lowered, scheduled or planned."));
}

py::dict constants(const ir::Module& module) {
  py::dict out;
  for (const auto& [hash, data] : module.constants) {
    const py::bytes bytes(reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size());
    out[py::str(hash)] = py::make_tuple(ir::name_of(data->type.dtype), data->type.sizes, bytes);
  }
  return out;
}

void bind_values(py::module_& module) {
  py::class_<ir::DType>(module, "DType", "Element type of the IR, made from its name.")
      .def(py::init([](const std::string& name) { return ir::dtype_from_name(name); }),
           py::arg("name"))
      .def_property_readonly("name", [](ir::DType dtype) { return ir::name_of(dtype); })
      .def_property_readonly("item_bytes", [](ir::DType dtype) { return ir::item_bytes(dtype); })
      .def("__repr__", [](ir::DType dtype) { return concat("DType('", ir::name_of(dtype), "')"); })
      .def("__eq__", [](ir::DType a, const py::object& b) {
        return py::isinstance<ir::DType>(b) && a == b.cast<ir::DType>();
      })
      .def("__hash__", [](ir::DType dtype) { return static_cast<int>(dtype); });
  py::class_<ir::GraphRef>(module, "GraphRef", "Names another graph of the module.")
      .def(py::init([](const std::string& name) { return ir::GraphRef{name}; }), py::arg("name"))
      .def_readonly("name", &ir::GraphRef::name)
      .def("__repr__", [](const ir::GraphRef& ref) { return "@" + ref.name; });
  py::class_<ValueHandle>(module, "Value", "A value of a graph.")
      .def_property_readonly("name", [](const ValueHandle& v) { return v.value->name; })
      .def_property_readonly("dtype",
                             [](const ValueHandle& v) { return ir::name_of(v.value->type.dtype); })
      .def_property_readonly("sizes", [](const ValueHandle& v) { return v.value->type.sizes; })
      .def_property_readonly("type_text", [](const ValueHandle& v) { return v.value->type.text(); })
      .def_property_readonly("op", [](const ValueHandle& v) { return v.value->op->name.str(); })
      .def("__repr__",
           [](const ValueHandle& v) {
             return concat("%", v.value->name, " : ", v.value->type.text());
           })
      .def("__eq__",
           [](const ValueHandle& a, const py::object& b) {
             return py::isinstance<ValueHandle>(b) && a.value == b.cast<ValueHandle>().value;
           })
      .def("__hash__", [](const ValueHandle& v) { return std::hash<ir::Value*>()(v.value); });
}

void bind_graph(py::module_& module) {
  py::class_<GraphHandle>(module, "Graph", "A graph of a module.")
      .def_property_readonly("name", [](const GraphHandle& self) { return self.graph->name; })
      .def("op", &add_op, py::arg("name"), py::arg("operands") = py::tuple(),
           py::arg("attrs") = py::dict(), py::arg("types") = py::none(),
           py::arg("source_location") = py::none(), py::arg("names") = py::none(),
           "Appends an op and returns its results. Types are inferred when None.")
      .def("constant", &add_constant_op, py::arg("dtype"), py::arg("sizes"), py::arg("data"),
           py::arg("source_location") = py::none(), py::arg("name") = "",
           py::arg("annotations") = py::dict(),
           "Appends a constant: few elements are printed inline, many are stored by hash.")
      .def_property(
          "outputs",
          [](const GraphHandle& self) { return to_handles(self, self.graph->outputs); },
          [](const GraphHandle& self, const py::sequence& values) {
            std::vector<ir::Value*> outputs;
            for (py::handle value : values) outputs.push_back(to_value(self, value));
            self.graph->outputs = std::move(outputs);
          })
      .def("__len__", [](const GraphHandle& self) { return self.graph->ops.size(); })
      .def("text", [](const GraphHandle& self) { return ir::print(*self.graph); });
}

}  // namespace

void bind_ir(py::module_& module) {
  bind_values(module);
  bind_graph(module);
  py::class_<ir::Module, std::shared_ptr<ir::Module>>(module, "Module", "A program of graphs.")
      .def(py::init<>())
      .def("add_graph",
           [](const std::shared_ptr<ir::Module>& self, const std::string& name) {
             return GraphHandle{self, self->add_graph(name)};
           },
           py::arg("name"))
      .def("graph", &find_graph, py::arg("name"))
      .def_property_readonly("graphs",
                             [](const std::shared_ptr<ir::Module>& self) {
                               py::list out;
                               for (const auto& graph : self->graphs) {
                                 out.append(GraphHandle{self, graph.get()});
                               }
                               return out;
                             })
      .def("add_constant",
           [](ir::Module& self, py::handle dtype, const ir::Dims& sizes, const py::buffer& data) {
             const ir::Type type{to_dtype(dtype), sizes, {}};
             const py::buffer_info info = checked_buffer(data, type);
             return self.add_constant(type, info.ptr);
           },
           py::arg("dtype"), py::arg("sizes"), py::arg("data"))
      .def("constants", &constants, "By hash: dtype, sizes, bytes.")
      .def("save_constants", &ir::save_constants, py::arg("path"),
           "Writes the large constants as a safetensors file; False when there are none.")
      .def("text", [](const ir::Module& self) { return ir::print(self); })
      .def("verify", [](const ir::Module& self,
                        const std::string& level) { ir::verify(self, to_level(level)); },
           py::arg("level") = "translated");
  module.def(
      "parse",
      [](const std::string& text, const ir::Module* constants_of) {
        return std::shared_ptr<ir::Module>(ir::parse(text, constants_of));
      },
      py::arg("text"), py::arg("constants_of") = nullptr,
      "The module of this IR text; large constants are looked up in the other module.");
  module.def(
      "load_constants",
      [](const std::string& path) {
        return std::shared_ptr<ir::Module>(ir::load_constants(path));
      },
      py::arg("path"), "A module that only holds the constants of such a file.");
  module.def(
      "unpack_constants",
      [](const py::bytes& data, const std::string& name) {
        return std::shared_ptr<ir::Module>(ir::unpack_constants(std::string_view(data), name));
      },
      py::arg("data"), py::arg("name"), "Likewise, of the bytes of a file of that name.");
}

}  // namespace poptorch::python
