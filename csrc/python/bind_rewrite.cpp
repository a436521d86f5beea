// poptorch._C: passes by name, for `python -m poptorch opt` and the golden tests.
#include <pybind11/stl.h>

#include "python/bind.h"
#include "rewrite/pass.h"
#include "rewrite/pipeline.h"
#include "support/algorithm.h"
#include "support/switches.h"

namespace poptorch::python {

void bind_rewrite(py::module_& module) {
  module.def(
      "passes",
      [] {
        py::list out;
        for (const rewrite::Pass& pass : rewrite::all_passes()) {
          out.append(py::make_tuple(pass.name, pass.doc));
        }
        return out;
      },
      "(name, help) of each pass.");
  module.def("pipeline", &rewrite::pipeline, "Names of the passes of a compilation, in order.");
  module.def(
      "switches",
      [] {
        py::list out;
        for (const Switch& row : all_switches()) out.append(py::make_tuple(row.name, row.doc));
        return out;
      },
      "(name, help) of each optimization that POPTORCH_OFF can turn off, beside the passes.");
  module.def(
      "algorithms",
      [] {
        py::list out;
        for (const AlgorithmName& row : all_algorithms()) {
          out.append(py::make_tuple(row.family, row.name, row.doc));
        }
        return out;
      },
      "(family, name, help) of each algorithm that POPTORCH_ALGORITHM=family:name can force.");
  module.def(
      "run_passes",
      [](ir::Module& self, const std::vector<std::string>& names, int64_t limit, bool verify) {
        py::list done;
        rewrite::rewrite(self, {names, limit, verify},
                         [&](const rewrite::PassDone& pass, ir::Module&) {
                           done.append(py::make_tuple(pass.pass, pass.changed, pass.seconds));
                         });
        return done;
      },
      py::arg("module"), py::arg("names"), py::arg("limit") = -1, py::arg("verify") = true,
      "Runs passes in place and returns (name, changed, seconds) of each. Values held from before "
      "must not be used any more.");
}

}  // namespace poptorch::python
