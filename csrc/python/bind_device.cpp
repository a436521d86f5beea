// poptorch._C: kinds of IPUs, systems of them, and what ops cost on one.
#include <memory>
#include <string>

#include "device/cost/cost.h"
#include "device/system.h"
#include "ir/text.h"
#include "python/bind.h"

namespace poptorch::python {

namespace {

using py::literals::operator""_a;

py::dict target_row(const device::Target& target) {
  return py::dict("name"_a = target.name, "version"_a = target.version, "tiles"_a = target.tiles,
                  "tile_bytes"_a = target.tile_bytes,
                  "interleaved_start"_a = target.interleaved_start,
                  "clock_hz"_a = target.clock_hz,
                  "links"_a = target.links,
                  "link_bytes_per_second"_a = target.link_bytes_per_second,
                  "source"_a = target.source);
}

py::list system_rows() {
  py::list out;
  for (const device::System& system : device::all_systems()) {
    out.append(py::make_tuple(system.name, system.ipus, target_row(*system.target), system.hosts));
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

py::list costs(const std::string& text, const std::string& target, double memory_proportion,
               bool half_partials) {
  const std::unique_ptr<ir::Module> module = ir::parse(text);
  const device::Target& row = device::target_named(target);
  const device::Settings settings{memory_proportion, half_partials ? 2 : 4};
  py::list out;
  for (const ir::Op* op : module->all_ops()) out.append(cost_dict(*op, row, settings));
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
        for (const device::Target& target : device::all_targets()) out.append(target_row(target));
        return out;
      },
      "The kinds of IPUs.");
  module.def("op_costs", &costs, py::arg("text"), py::arg("target"),
             py::arg("memory_proportion") = 0.6, py::arg("half_partials") = false,
             "What each op of IR text costs on one IPU of the target: cycles, and bytes on the "
             "fullest tile.");
}

}  // namespace poptorch::python
