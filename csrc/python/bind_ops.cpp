// poptorch._C: the op table, type rules, and single ops on numpy arrays.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "kernels/gemm/bf16/bf16x3.h"
#include "kernels/gemm/blocked.h"
#include "kernels/simd/isa.h"
#include "ops/annotation.h"
#include "ops/custom/custom.h"
#include "ops/evaluate.h"
#include "ops/kernel.h"
#include "ops/op_def.h"
#include "ops/work.h"
#include "python/bind.h"
#include "support/error.h"
#include "support/settings/settings.h"

namespace poptorch::python {

namespace {

py::dtype numpy_dtype(ir::DType dtype) {
  constexpr std::array<const char*, 10> names = {"bool",   "uint8", "int8",    "int16",  "int32",
                                                 "int64",  "float16", "uint16", "float32",
                                                 "float64"};
  return py::dtype(names[static_cast<size_t>(dtype)]);
}

ir::DType dtype_of(const py::array& array) {
  for (size_t i = 0; i <= static_cast<size_t>(ir::DType::f64); ++i) {
    const auto dtype = static_cast<ir::DType>(i);
    if (dtype != ir::DType::bf16 && array.dtype().is(numpy_dtype(dtype))) return dtype;
  }
  throw_user_error(concat("[evaluate] no IR dtype for an array of ",
                          py::str(array.dtype()).cast<std::string>(),
                          ". Convert it; bf16 goes as (uint16 array, \"bf16\")."));
}

// An operand as given: an array, or (uint16 array, "bf16").
struct Operand {
  py::array array;
  ir::Type type;
};

Operand to_operand(py::handle object, bool strides_allowed) {
  Operand out;
  if (py::isinstance<py::tuple>(object)) {
    const auto pair = object.cast<py::tuple>();
    out.array = pair[0].cast<py::array>();
    out.type.dtype = to_dtype(pair[1]);
  } else {
    out.array = object.cast<py::array>();
    out.type.dtype = dtype_of(out.array);
  }
  ir::Dims strides;
  bool plain = strides_allowed;
  for (py::ssize_t i = 0; i < out.array.ndim(); ++i) {
    out.type.sizes.push_back(out.array.shape(i));
    strides.push_back(out.array.strides(i) / out.array.itemsize());
    plain = plain && out.array.strides(i) >= 0 && out.array.strides(i) % out.array.itemsize() == 0;
  }
  if (plain) {
    out.type.set_strides(strides);
  } else {
    out.array = py::array::ensure(out.array, py::array::c_style);
  }
  return out;
}

py::array to_array(const ir::Type& type, const ops::Bytes& bytes) {
  py::array out(numpy_dtype(type.dtype), type.sizes);
  std::memcpy(out.mutable_data(), bytes.data(), bytes.size());
  return out;
}

// A graph with one op on `input` values of the given types.
const ir::Op* add_single(ir::Graph& graph, const std::string& name,
                         const std::vector<std::optional<ir::Type>>& operands,
                         const py::dict& attrs, const std::optional<py::sequence>& types) {
  ir::Op op;
  op.name = ir::OpName(name);
  const ops::OpDef& row = ops::op_def(op.name);
  op.attrs = ops::shortest_attrs(row, to_attrs(attrs));
  for (const auto& type : operands) {
    const ir::OpName input("input");
    op.operands.push_back(type ? graph.append(input, {}, {}, {*type})->result() : nullptr);
  }
  std::vector<ir::Type> result_types;
  if (types) {
    ops::check_signature(row, op);
    for (py::handle type : *types) result_types.push_back(to_type(type));
  } else {
    result_types = ops::infer(op);
  }
  return graph.append(op.name, op.operands, op.attrs, result_types);
}

// An op on arrays, by itself.
struct Single {
  std::vector<std::optional<Operand>> operands;
  ir::Graph graph{"evaluate"};
  const ir::Op* op = nullptr;

  Single(const std::string& name, const py::sequence& arrays, const py::dict& attrs,
         const std::optional<py::sequence>& types) {
    const bool strides_allowed = ops::op_def(ir::OpName(name)).strided != ops::Strided::none;
    std::vector<std::optional<ir::Type>> operand_types;
    for (py::handle object : arrays) {
      operands.push_back(object.is_none() ? std::nullopt
                                          : std::optional(to_operand(object, strides_allowed)));
      const auto& given = operands.back();
      operand_types.push_back(given ? std::optional(given->type) : std::nullopt);
    }
    op = add_single(graph, name, operand_types, attrs, types);
  }
};

py::list evaluate(const std::string& name, const py::sequence& operands, const py::dict& attrs,
                  const std::optional<py::sequence>& types, int threads,
                  const std::vector<int>& inplace) {
  const Single single(name, operands, attrs, types);
  std::vector<const void*> pointers;
  for (const auto& given : single.operands) {
    pointers.push_back(given ? given->array.data() : nullptr);
  }
  const std::vector<ops::Bytes> results = [&] {
    const py::gil_scoped_release release;  // as in a run
    return ops::evaluate(*single.op, pointers, threads, inplace);
  }();
  py::list out;
  for (size_t i = 0; i < results.size(); ++i) {
    out.append(to_array(single.op->result(i)->type, results[i]));
  }
  return out;
}

std::string algorithm_of(const std::string& name, const py::sequence& operands,
                         const py::dict& attrs) {
  const Single single(name, operands, attrs, std::nullopt);
  const py::gil_scoped_release release;
  const SettingsScope scope;
  return ops::prepare({*single.op, 1}).algorithm;
}

py::list infer(const std::string& name, const py::sequence& operands, const py::dict& attrs) {
  std::vector<std::optional<ir::Type>> types;
  for (py::handle type : operands) {
    types.push_back(type.is_none() ? std::nullopt : std::optional(to_type(type)));
  }
  ir::Graph graph("infer");
  py::list out;
  for (const auto& result : add_single(graph, name, types, attrs, std::nullopt)->results) {
    out.append(from_type(result->type));
  }
  return out;
}

py::tuple work(const std::string& name, const py::sequence& operands, const py::dict& attrs,
               const std::optional<py::sequence>& results) {
  std::vector<std::optional<ir::Type>> types;
  for (py::handle type : operands) {
    types.push_back(type.is_none() ? std::nullopt : std::optional(to_type(type)));
  }
  ir::Graph graph("work");
  const ops::Work found = ops::work_of(*add_single(graph, name, types, attrs, results));
  return py::make_tuple(found.flops, found.bytes);
}

py::dict row_dict(const ops::OpDef& row) {
  constexpr std::array<const char*, 3> strided = {"none", "all", "gemm"};
  py::list attrs;
  for (const ops::AttrDef& attr : row.attrs) {
    attrs.append(py::make_tuple(attr.name, from_attr(attr.default_value), attr.required,
                               attr.lowered));
  }
  py::dict out;
  out["name"] = row.name.str();
  out["aten"] = row.aten;
  out["doc"] = row.doc;
  out["operands"] = row.operands;
  out["results"] = row.results;
  out["attrs"] = attrs;
  out["strided"] = strided[static_cast<size_t>(row.strided)];
  out["inplace"] = row.inplace;
  out["effects"] = row.effects;
  out["random"] = row.random;
  out["view"] = row.view;
  out["lowered"] = row.lowered;
  out["infers"] = row.infer != nullptr;
  out["counts_flops"] = row.flops != nullptr || row.elementwise;
  out["has_kernel"] = ops::find_kernel(row.name) != nullptr;
  return out;
}

py::dict custom_op_dict(const ops::CustomOp& op) {
  py::list attributes;
  for (uint32_t i = 0; i < op.abi.attribute_count; ++i) {
    attributes.append(op.abi.attributes[i].name);
  }
  py::dict out;
  out["domain"] = op.abi.domain;
  out["name"] = op.abi.name;
  out["version"] = op.abi.version;
  out["library"] = op.library;
  out["attributes"] = attributes;
  out["gradient"] = op.abi.gradient == nullptr ? py::object(py::none()) : py::str(op.abi.gradient);
  out["reads_inputs"] = (op.abi.gradient_reads & POPTORCH_READS_INPUTS) != 0;
  out["reads_outputs"] = (op.abi.gradient_reads & POPTORCH_READS_OUTPUTS) != 0;
  return out;
}

// Where the variable takes that value.
void set_variable(const char* name, const char* value) {
  const char* present = std::getenv(name);
  const std::optional<std::string> before =
      present == nullptr ? std::nullopt : std::optional<std::string>(present);
  setenv(name, value, 1);
  try {
    Settings::from_environment();
  } catch (const UserError&) {
    before ? setenv(name, before->c_str(), 1) : unsetenv(name);
    throw;
  }
}

void bind_custom_ops(py::module_& module) {
  module.def(
      "custom_ops",
      [] {
        py::list found;
        for (const ops::CustomOp* op : ops::loaded_custom_ops()) found.append(custom_op_dict(*op));
        return found;
      },
      "The ops of all libraries of custom ops that are loaded.");
  module.def(
      "find_custom_op",
      [](const std::string& domain, const std::string& name, int64_t version) -> py::object {
        const ops::CustomOp* found = ops::find_custom_op(domain, name, version);
        return found == nullptr ? py::object(py::none()) : custom_op_dict(*found);
      },
      py::arg("domain"), py::arg("name"), py::arg("version"),
      "That op of a library that is loaded, or None; an error when two libraries have it.");
}

}  // namespace

void bind_ops(py::module_& module) {
  bind_custom_ops(module);
  module.def(
      "annotations",
      [] {
        py::dict rows;
        for (const ops::Annotation& row : ops::annotations()) {
          py::list names;
          for (const ir::OpName name : row.ops) names.append(name.str());
          rows[py::str(std::string(row.name))] = names;
        }
        return rows;
      },
      "The attributes that ops of several rows may carry, and the only ops that do (none: any).");
  module.def(
      "op_table",
      [] {
        py::list rows;
        for (const ops::OpDef& row : ops::op_table()) rows.append(row_dict(row));
        return rows;
      },
      "All rows of the op table, sorted by name.");
  module.def("op_row",
             [](const std::string& name) { return row_dict(ops::op_def(ir::OpName(name))); },
             py::arg("name"), "One row; an unknown name is an error that lists near ones.");
  module.def("evaluate", &evaluate, py::arg("op"), py::arg("operands"),
             py::arg("attrs") = py::dict(), py::arg("types") = py::none(), py::arg("threads") = 1,
             py::arg("inplace") = std::vector<int>(),
             "Computes one op on numpy arrays. A bf16 operand is (uint16 array, \"bf16\"); bf16 "
             "results are uint16 arrays.");
  module.def("algorithm_of", &algorithm_of, py::arg("op"), py::arg("operands"),
             py::arg("attrs") = py::dict(),
             "Which algorithm computes the op; empty where there is one way only.");
  module.def("isa", [] { return simd::name_of(simd::isa()); },
             "The instruction set that kernels use: base, avx2, avx512 or amx.");
  module.def("machine_isas", [] {
    py::list names;
    for (simd::Isa level : simd::machine_levels()) names.append(simd::name_of(level));
    return names;
  }, "The instruction sets that vector kernels can use on this machine, lowest first.");
  module.def("set_isa", [](const char* name) { set_variable("POPTORCH_ISA", name); },
             py::arg("name"),
             "For tests: sets POPTORCH_ISA, for programs that are compiled from now on.");
  module.def("gemm_by", &kernels::gemm_by,
             "What computes f32 products of matrices: \"loops\" of our own or a \"library\".");
  module.def("set_gemm", [](const char* name) { set_variable("POPTORCH_GEMM", name); },
             py::arg("name"),
             "For tests: sets POPTORCH_GEMM, for programs that are compiled from now on.");
  module.def("has_bf16x3_gemm", &kernels::has_bf16x3_gemm,
             "Whether f32 products run on the CPU's unit for bfloat16 (AMX), by parts.");
  module.def("work", &work, py::arg("op"), py::arg("operands"), py::arg("attrs") = py::dict(),
             py::arg("types") = py::none(),
             "FLOPs (None: not known) and bytes of one run, for types (dtype, sizes) or None.");
  module.def("infer", &infer, py::arg("op"), py::arg("operands"), py::arg("attrs") = py::dict(),
             "Result types (dtype, sizes) for operand types (dtype, sizes) or None.");
}

}  // namespace poptorch::python
