// States between the host's order of elements and the device's.
#pragma once

#include "assemble/program.h"

namespace poptorch::run {

// Copies a whole state: from the host's tensor, row-major as its type says, and back to it.
void write_order(const assemble::State& state, const void* host, void* device);
void read_order(const assemble::State& state, const void* device, void* host);

}  // namespace poptorch::run
