// poptorch._C: kinds of IPUs, systems of them, and what ops cost on one.
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "device/cost/cost.h"
#include "device/cost/multi_conv.h"
#include "device/system.h"
#include "ir/text.h"
#include "python/bind.h"
#include "python/device_values.h"

namespace poptorch::python {

namespace {

using py::literals::operator""_a;

py::list system_rows() {
  py::list out;
  for (const device::System& system : device::all_systems()) {
    out.append(py::make_tuple(system.name, system.ipus, target_dict(*system.target), system.hosts));
  }
  return out;
}

py::dict cost_dict(const ir::Op& op, const device::Target& target,
                   const device::Settings& settings) {
  const device::Cost cost = device::cost_of(op, target, settings);
  return py::dict("op"_a = op.name.str(), "cycles"_a = cost.cycles(), "compute"_a = cost.compute,
                  "exchange"_a = cost.exchange, "sync"_a = cost.sync, "steps"_a = cost.steps,
                  "always_bytes"_a = cost.always_bytes,
                  "temporary_bytes"_a = cost.temporary_bytes,
                  "operand_bytes"_a = cost.operand_bytes,
                  "interleaved_bytes"_a = cost.interleaved_bytes,
                  "peak_with_gaps"_a = device::peak_with_gaps(cost, target),
                  "is_bound"_a = cost.is_bound, "plan"_a = cost.plan);
}

py::list costs(const std::string& text, const py::object& target, const py::dict& settings) {
  const std::unique_ptr<ir::Module> module = ir::parse(text);
  const device::Target machine = target_from(target);
  std::map<int64_t, device::Settings> by_ipu;
  const auto settings_of = [&](int64_t ipu) {
    const auto found = by_ipu.find(ipu);
    return found != by_ipu.end() ? found->second
                                 : by_ipu[ipu] = settings_from(settings, ipu);
  };
  device::share_tiles(*module, machine, settings_of);
  py::list out;
  for (const ir::Op* op : module->all_ops()) {
    out.append(cost_dict(*op, machine, settings_of(op->attrs.get_int(ir::attr::ipu, 0))));
  }
  return out;
}

}  // namespace

void bind_device(py::module_& module) {
  module.def("systems", &system_rows,
             "(name, IPUs, target, hosts) of each system; a target is a row of targets.def.");
  module.def(
      "targets",
      [] {
        py::list out;
        for (const device::Target& target : device::all_targets()) out.append(target_dict(target));
        return out;
      },
      "The kinds of IPUs.");
  module.def("target_fields", &target_fields,
             "(name, whether it is an integer, least value, meaning) of each field of a target.");
  module.def("op_costs", &costs, py::arg("text"), py::arg("target"),
             py::arg("settings") = py::dict(),
             "What each op of IR text costs on its IPU: cycles, and bytes on the fullest tile.");
}

}  // namespace poptorch::python
