// The module poptorch._C: calls the bind functions, one for each part of the core. Those of one
// function are here: each file with pybind11 takes seconds to compile.
#include "kernels/aten/allocator.h"
#include "python/bind.h"
#include "support/mutant.h"

namespace poptorch::python {

namespace {

void bind_aten(py::module_& module) {
  module.def("aten_allocations", &aten::original_allocations,
             "How often torch's own allocator was called, on any thread of the process, "
             "since the first ATen kernel was prepared.");
}

#ifdef POPTORCH_MUTANTS
void bind_mutants(py::module_& module) {
  check_mutant();
  module.def(
      "mutants",
      [] {
        py::list out;
        for (const MutantRow& row : all_mutants()) out.append(py::make_tuple(row.name, row.doc));
        return out;
      },
      "(name, help) of each mistake that POPTORCH_MUTANT can turn on.");
}
#endif

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "The compiled part of poptorch.";
  bind_aten(module);
  bind_call_checks(module);
  bind_device(module);
  bind_errors(module);
  bind_estimate(module);
  bind_executable(module);
  bind_graph_call(module);
  bind_host(module);
  bind_ir(module);
  bind_ops(module);
  bind_rewrite(module);
  bind_tasks(module);
  bind_tile_memory(module);
  bind_torch_tensors(module);
#ifdef POPTORCH_MUTANTS
  bind_mutants(module);
#endif
}

}  // namespace poptorch::python
