// Between IPUs: copies and collectives over IPU-Links. Times are from the rates of the links; no
// measurement of a collective is published: 50 %.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"
#include "support/mutant.h"

namespace poptorch::device {

namespace {

// Links that join an IPU with each of its two neighbours on a ring.
constexpr int64_t ring_links = 2;
// Links of an IPU that a collective keeps busy. [fit] of the fixed time of a weight update of
// ResNet-50, 8 to 11 ms for 51 MB on 16 to 256 IPUs: factor 2.
constexpr int64_t collective_links = 1;

double link_cycles(const Target& target, double bytes, int64_t links) {
  const double rate = static_cast<double>(std::min(links, target.links)) *
                      target.link_bytes_per_second * target.link_efficiency;
  return bytes / rate * target.clock_hz;
}

Cost copy_cost(const Call& call) {
  Steps steps(call);
  steps.add(0, neighbour_cycles(ops::operands_bytes(call), call.target));
  return steps.cost;
}

// The ring from an IPU to that of the next replica passes the other IPUs of its replica, whose rings
// take the same links.
double ring_cycles(const Call& call, double bytes) {
  return link_cycles(call.target, bytes * static_cast<double>(call.settings.ipus),
                     collective_links);
}

// A ring of replicas: each part goes round twice, once to be summed and once with the result. An op
// of all replicas does not say how many there are.
Cost all_reduce_cost(const Call& call) {
  Steps steps(call);
  const Target& target = call.target;
  const double bytes = ops::operands_bytes(call);
  const int64_t size = call.attrs().get_int(ir::attr::group_size);
  const int64_t all = MUTANT(ignores_replicas) ? 2 : call.settings.replicas;
  const auto replicas = static_cast<double>(size == 0 ? all : size);
  if (replicas == 1) return steps.cost;
  const double rounds = 2 * (replicas - 1) / replicas;
  const double hops = 2 * (replicas - 1);
  steps.add(0, ring_cycles(call, bytes * rounds) +
                   hops * target.global_sync_seconds * target.clock_hz);
  for (size_t i = 0; i < call.count(); ++i) {
    const ir::Type& x = call.operand(i);
    steps.add_elementwise(call.share(x), ir::item_bytes(x.dtype), 3);
  }
  return steps.cost;
}

// Half of an all_reduce: the parts of `shards` replicas go round once.
template <bool sums>
Cost part_cost(const Call& call) {
  Steps steps(call);
  const Target& target = call.target;
  const auto shards = static_cast<double>(call.attrs().get_int(ir::attr::shards));
  const bool is_sum = call.attrs().has(is_summed);
  const double whole = is_sum ? 4 * shards
                       : sums ? ops::operands_bytes(call)
                              : ops::results_bytes(call);
  steps.add(0, ring_cycles(call, whole * (shards - 1) / shards) +
                   (shards - 1) * target.global_sync_seconds * target.clock_hz);
  const ir::Type& x = call.operand(0);
  if (sums) steps.add_elementwise(call.share(x), ir::item_bytes(x.dtype), 3);
  return steps.cost;
}

}  // namespace

double neighbour_cycles(double bytes, const Target& target) {
  return link_cycles(target, bytes, ring_links) + target.global_sync_seconds * target.clock_hz;
}

std::vector<CostRow> collective_costs() {
  return {{"ipu_copy", copy_cost},
          {"all_reduce", all_reduce_cost},
          {"reduce_scatter", part_cost<true>},
          {"all_gather", part_cost<false>}};
}

}  // namespace poptorch::device
