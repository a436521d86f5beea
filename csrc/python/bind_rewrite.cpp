// poptorch._C: passes by name, for `python -m poptorch opt` and the golden tests.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "lower/cpu/pipeline.h"
#include "python/bind.h"
#include "rewrite/pipeline.h"
#include "support/algorithms/algorithm.h"
#include "support/error.h"
#include "support/settings/switches.h"

namespace poptorch::python {

namespace {

void bind_measuring(py::module_& module) {
  module.def("scale_cost", &scale_cost, py::arg("algorithm"), py::arg("factor"),
             "For tests: multiplies the estimated cost of \"family:name\" in this process.");
  module.def(
      "measured",
      [](const std::string& problem, const std::vector<std::string>& algorithms,
         const std::vector<Trial>& trials) -> py::object {
        const Measured* found = measured(problem, algorithms, [&] { return trials; });
        if (found == nullptr) return py::none();
        py::list timings;
        for (const Timing& timing : found->timings) {
          timings.append(py::make_tuple(timing.algorithm, timing.us));
        }
        return timings;
      },
      py::arg("problem"), py::arg("algorithms"), py::arg("trials"),
      "For tests: (algorithm, us) of each, the chosen first; None: tables choose.");
}

}  // namespace

void bind_rewrite(py::module_& module) {
  bind_measuring(module);
  module.def(
      "passes",
      [] {
        py::list out;
        for (const rewrite::Pass& pass : lower::cpu::all_passes()) {
          out.append(py::make_tuple(pass.name, pass.doc));
        }
        return out;
      },
      "(name, help) of each pass: those of rewrite, then those of lower.");
  module.def(
      "pipeline",
      [](const std::string& step) {
        USER_CHECK(step.empty() || step == "rewrite" || step == "lower", "[passes] \"", step,
                   "\" has no passes. The steps that have some are rewrite and lower.");
        std::vector<std::string> names;
        if (step != "lower") names = rewrite::pipeline();
        if (step == "rewrite") return names;
        for (const std::string& name : lower::cpu::pipeline()) names.push_back(name);
        return names;
      },
      py::arg("step") = "",
      "Names of the passes of a compilation, in order; with `step` those of rewrite or of lower.");
  module.def(
      "switches",
      [] {
        py::list out;
        for (const Switch& row : all_switches()) out.append(py::make_tuple(row.name, row.doc));
        return out;
      },
      "(name, help) of each optimization that POPTORCH_OFF can turn off, besides the passes.");
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
        rewrite::run_passes(self, lower::cpu::all_passes(), names, {0, limit, verify},
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
