// How many IPUs a placed module needs, and whether a device can have as many.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace poptorch::place {

struct IpuLimits {
  int64_t replicas = 1;
  int64_t most = 0;               // over all replicas; 0: no limit
  bool is_power_of_two = false;   // the number over all replicas must be one
};

// IPUs of one replica: one more than the highest number on an op.
int64_t ipus_used(const ir::Module& module);

// A user error when the number of IPUs over all replicas breaks a limit.
void check_ipus(const ir::Module& module, const IpuLimits& limits);

}  // namespace poptorch::place
