// poptorch._C: the memory of IPUs.
#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "device/cost/multi_conv.h"
#include "estimate/tile_memory.h"
#include "place/work_report.h"
#include "python/bind.h"
#include "python/device_values.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

using py::literals::operator""_a;

py::dict category_dict(const estimate::CategoryBytes& bytes) {
  py::dict row;
  for (size_t i = 0; i < bytes.size(); ++i) {
    row[estimate::name_of(static_cast<estimate::Category>(i))] = bytes[i];
  }
  return row;
}

py::list ipu_memory(const std::string& text) {
  py::list out;
  for (const estimate::CategoryBytes& bytes : estimate::ipu_memory(text)) {
    out.append(category_dict(bytes));
  }
  return out;
}

std::string location_of(const ir::Op& op) {
  const ir::SourceLocation& at = op.source_location;
  return at.file.empty() ? "" : at.file + ":" + std::to_string(at.line);
}

py::list step_rows(const estimate::IpuTiles& ipu) {
  const auto count = static_cast<int64_t>(ipu.by_tile.size());
  py::list rows;
  for (const estimate::MemoryStep& step : ipu.steps) {
    py::dict live = category_dict(step.live);
    live.attr("pop")("streaming");
    rows.append(py::dict("id"_a = step.id, "op"_a = step.op->name.str(),
                         "module"_a = step.op->source_location.module,
                         "location"_a = location_of(*step.op), "live"_a = live,
                         "temporary"_a = step.temporary_bytes * count,
                         "tile_bytes"_a = step.tile_bytes));
  }
  return rows;
}

py::dict value_row(const estimate::LiveValue& value) {
  return py::dict("name"_a = value.name, "category"_a = estimate::name_of(value.category),
                  "bytes"_a = value.bytes, "module"_a = value.op->source_location.module,
                  "location"_a = location_of(*value.op));
}

py::list live_rows(const estimate::IpuTiles& ipu) {
  py::list rows;
  for (const estimate::LiveValue& value : ipu.values) {
    if (ipu.is_live_at_peak(value)) rows.append(value_row(value));
  }
  return rows;
}

py::list value_rows(const estimate::IpuTiles& ipu) {
  py::list rows;
  for (const estimate::LiveValue& value : ipu.values) {
    py::dict row = value_row(value);
    row["first"] = value.first;
    row["last"] = value.last;
    rows.append(row);
  }
  return rows;
}

py::dict ipu_dict(const estimate::IpuTiles& ipu, int64_t number) {
  const auto count = static_cast<double>(ipu.by_tile.size());
  const auto over_all = [&](double bytes) { return static_cast<int64_t>(bytes * count); };
  py::dict categories = category_dict(ipu.bytes);
  categories["code"] = over_all(ipu.program.code);
  categories["exchange"] = over_all(ipu.program.exchange);
  categories["vertex_state"] = over_all(ipu.program.vertex_state);
  categories["temporary"] = over_all(static_cast<double>(ipu.temporary_bytes));
  return py::dict("ipu"_a = number, "categories"_a = categories, "peak_bytes"_a = ipu.peak_bytes,
                  "peak_without_gaps"_a = ipu.peak_without_gaps,
                  "mean_bytes"_a = ipu.mean_bytes, "by_tile"_a = ipu.by_tile,
                  "peak_step"_a = ipu.peak, "steps"_a = step_rows(ipu),
                  "live_at_peak"_a = live_rows(ipu), "values"_a = value_rows(ipu));
}

py::list tile_memory(const std::string& text, const py::object& target,
                     const py::dict& settings) try {
  const std::unique_ptr<ir::Module> module = place::parse_placed(text);
  const device::Target machine = target_from(target);
  const auto settings_of = [&](int64_t ipu) { return settings_from(settings, ipu); };
  device::share_tiles(*module, machine, settings_of);
  estimate::mark_summed(*module);
  estimate::CostTable table(machine, settings_of);
  py::list out;
  for (const estimate::IpuTiles& ipu : estimate::tile_memory(*module, table)) {
    out.append(ipu_dict(ipu, static_cast<int64_t>(py::len(out))));
  }
  return out;
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

}  // namespace

void bind_tile_memory(py::module_& module) {
  module.def("ipu_memory", &ipu_memory, py::arg("text"),
             "Bytes by category for each IPU, of a placed program's text.");
  module.def("tile_memory", &tile_memory, py::arg("text"), py::arg("target"),
             py::arg("settings") = py::dict(),
             R"(The memory of the tiles of each IPU, of a placed program's text.

A dictionary for each IPU: `ipu`; `categories`: bytes over all tiles at the peak, by category (of
`streaming` off the chip); `peak_bytes`: the highest address in use on the fullest tile;
`peak_without_gaps`: the most bytes on a tile; `mean_bytes` of all tiles and `by_tile`, highest
addresses, at the peak; `steps`: `id` (of `program_costs`), `op`, `module`, `location`, `live`
(bytes by category) and `temporary` (bytes over all tiles), and `tile_bytes`, the highest address on
the fullest tile, of each op in the order in which the IPU runs them; `peak_step`: the number of the
step with the peak; `values`: `name`, `category`, `bytes`, `module`, `location`, and `first` and
`last`, the numbers of the steps in which it is live, of values of at least a thousandth of the
bytes at the peak; `live_at_peak`: those at the peak.)");
}

}  // namespace poptorch::python
