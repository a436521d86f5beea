// How long a program takes in each form of the host, estimated by its work: for a choice between
// the forms, and for nothing else.
#pragma once

#include "assemble/program.h"
#include "run/host/host_form.h"

namespace poptorch::run {

struct HostCost {
  double in_turn_ns = 0;
  double side_ns = 0;        // in the form
  double library_share = 0;  // of what one thread computes, by calls of torch and oneDNN
  double extra_bytes = 0;    // of memory, for the form
};

// Of memory, for so many rounds of a loop at the same time in each replica.
double bytes_of_lanes(const assemble::Program& program, const HostOptions& options, int lanes);

// Of `replicas` or `micro`, where it applies.
HostCost cost_of(const assemble::Program& program, HostForm form, const HostOptions& options,
                 int workers);

}  // namespace poptorch::run
