// Between IPUs: copies and collectives over IPU-Links. Times are from the rates of the links; no
// measurement of a collective is published: 50 %.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

// Links that join an IPU with each of its two neighbours on a ring.
constexpr int64_t ring_links = 2;

double link_cycles(const Call& call, double bytes, int64_t links) {
  const Target& target = call.target;
  const double rate = static_cast<double>(std::min(links, target.links)) *
                      target.link_bytes_per_second * target.link_efficiency;
  return bytes / rate * target.clock_hz;
}

Cost copy_cost(const Call& call) {
  Steps steps(call);
  const Target& target = call.target;
  steps.add(0, link_cycles(call, ops::operands_bytes(call), ring_links) +
                   target.global_sync_seconds * target.clock_hz);
  return steps.cost;
}

// A ring of replicas: each part goes round twice, once to be summed and once with the result. An op
// of all replicas does not say how many there are.
Cost all_reduce_cost(const Call& call) {
  Steps steps(call);
  const Target& target = call.target;
  const double bytes = ops::operands_bytes(call);
  const int64_t size = call.attrs().get_int(ir::attr::group_size);
  const auto replicas = static_cast<double>(size == 0 ? call.settings.replicas : size);
  if (replicas == 1) return steps.cost;
  const double rounds = 2 * (replicas - 1) / replicas;
  const double hops = 2 * (replicas - 1);
  steps.add(0, link_cycles(call, bytes * rounds, 2 * ring_links) +
                   hops * target.global_sync_seconds * target.clock_hz);
  const ir::Type& x = call.operand(0);
  steps.add_elementwise(call.share(x), ir::item_bytes(x.dtype), 3);
  return steps.cost;
}

}  // namespace

std::vector<CostRow> collective_costs() {
  return {{"ipu_copy", copy_cost}, {"all_reduce", all_reduce_cost}};
}

}  // namespace poptorch::device
