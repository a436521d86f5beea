#include "python/device_values.h"

#include <limits>
#include <string>
#include <type_traits>

#include "support/error.h"

namespace poptorch::python {

namespace py = pybind11;

namespace {

constexpr double above_zero = std::numeric_limits<double>::min();

double memory_proportion(const py::handle& value, int64_t ipu) {
  if (!py::isinstance<py::dict>(value)) return value.cast<double>();
  const auto by_ipu = value.cast<py::dict>();
  const py::int_ key(ipu);
  return by_ipu.contains(key) ? by_ipu[key].cast<double>() : device::Settings().memory_proportion;
}

}  // namespace

device::Target target_from(const py::object& target) {
  if (py::isinstance<py::str>(target)) return device::target_named(target.cast<std::string>());
  const auto fields = target.cast<py::dict>();
  device::Target out;
  out.name = fields["name"].cast<std::string>();
#define FIELD(type, member, least, meaning) out.member = fields[#member].cast<type>();
#include "device/target_fields.def"
#undef FIELD
  if (fields.contains("source")) out.source = fields["source"].cast<std::string>();
  return out;
}

py::dict target_dict(const device::Target& target) {
  py::dict out;
  out["name"] = target.name;
#define FIELD(type, member, least, meaning) out[#member] = target.member;
#include "device/target_fields.def"
#undef FIELD
  out["source"] = target.source;
  return out;
}

py::list target_fields() {
  py::list out;
#define FIELD(type, member, least, meaning) \
  out.append(py::make_tuple(#member, std::is_integral_v<type>, static_cast<type>(least), meaning));
#include "device/target_fields.def"
#undef FIELD
  return out;
}

device::Settings settings_from(const py::dict& settings, int64_t ipu) {
  device::Settings out;
  for (const auto& [name, value] : settings) {
    const auto key = name.cast<std::string>();
    if (key == "memory_proportion") {
      out.memory_proportion = memory_proportion(value, ipu);
    } else if (key == "half_partials") {
      out.partial_bytes = value.cast<bool>() ? 2 : 4;
    } else if (key == "stable_norm") {
      out.has_stable_norm = value.cast<bool>();
    } else if (key == "dithering") {
      out.has_dithering = value.cast<bool>();
    } else if (key == "io_tiles") {
      out.io_tiles = value.cast<int64_t>();
    } else if (key == "replicas") {
      out.replicas = value.cast<int64_t>();
    } else {
      throw_user_error(concat("[settings] there is no setting \"", key, "\". Use ",
                              "memory_proportion, half_partials, stable_norm, dithering, ",
                              "io_tiles or replicas."));
    }
  }
  return out;
}

}  // namespace poptorch::python
