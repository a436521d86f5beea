// The module poptorch._C: only calls the bind functions, one for each part of the core.
#include "python/bind.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "The compiled part of poptorch.";
  poptorch::python::bind_aten(module);
  poptorch::python::bind_errors(module);
  poptorch::python::bind_executable(module);
  poptorch::python::bind_host(module);
  poptorch::python::bind_ir(module);
  poptorch::python::bind_ops(module);
  poptorch::python::bind_rewrite(module);
  poptorch::python::bind_watch(module);
#ifdef POPTORCH_MUTANTS
  poptorch::python::bind_mutants(module);
#endif
}
