#include "estimate/edge_cost.h"

#include "device/cost/cost.h"

namespace poptorch::estimate {

namespace {

double streaming_cycles(const tasks::EdgeRow& edge, const device::Target& target) {
  const double rate = target.streaming_bytes_per_second;
  return rate == 0 ? 0 : static_cast<double>(edge.bytes) / rate * target.clock_hz;
}

double stash_cycles(const tasks::EdgeRow& edge, const device::Target& target) {
  const auto bytes_of_tile = static_cast<double>(edge.bytes) / static_cast<double>(target.tiles);
  return bytes_of_tile / target.copy_bytes;
}

}  // namespace

double edge_cycles(const tasks::EdgeRow& edge, bool crosses, const device::Target& target) {
  const double step = target.step_cycles + target.op_cycles;
  const double steps = 2 * static_cast<double>(edge.tensors) * step;
  if (edge.is_streaming) return 2 * streaming_cycles(edge, target) + steps;
  if (crosses) return device::neighbour_cycles(static_cast<double>(edge.bytes), target) + step;
  return edge.depth > 1 ? 2 * stash_cycles(edge, target) + steps : 0;
}

double meeting_cycles(int64_t ipus, const device::Target& target) {
  if (ipus < 2) return 0;
  const double hops = 1 + static_cast<double>(ipus) / 4;
  return hops * target.global_sync_seconds * target.clock_hz;
}

}  // namespace poptorch::estimate
