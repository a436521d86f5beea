// poptorch._C, in the test build alone: the names of the mistakes that POPTORCH_MUTANT can turn on.
#include "python/bind.h"
#include "support/mutant.h"

#ifdef POPTORCH_MUTANTS

namespace poptorch::python {

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

}  // namespace poptorch::python

#endif
