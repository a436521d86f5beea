// Targets and settings of the device model from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "device/cost/cost.h"
#include "device/target.h"

namespace poptorch::python {

// Of the name of a row of targets.def, or a dict with all fields of target_fields.def.
device::Target target_from(const pybind11::object& target);
// All fields of a target, as target_from takes them.
pybind11::dict target_dict(const device::Target& target);
// Name, whether it is an integer, least value and meaning of each field.
pybind11::list target_fields();
// The settings of one IPU. Keys that are absent have their defaults: memory_proportion (a number,
// or a dict from the number of an IPU to one), half_partials, stable_norm, dithering, io_tiles,
// replicas.
device::Settings settings_from(const pybind11::dict& settings, int64_t ipu);

}  // namespace poptorch::python
