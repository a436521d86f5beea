// Copies and views, streams of the host, and streaming memory.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

// A view, a value that is there: no step.
Cost free_cost(const Call& call) {
  Cost cost;
  cost.operand_bytes = (ops::operands_bytes(call) + ops::results_bytes(call)) /
                       static_cast<double>(call.target.tiles);
  return cost;
}

// Elements of the result come from other tiles, in another order.
Cost copy_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& out = call.result();
  steps.add_copy(call.share(out), ir::item_bytes(out.dtype));
  return steps.cost;
}

// Elements in their order: whole vectors. An `assign` has no result.
Cost clone_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  const double bytes = call.share(x) * static_cast<double>(ir::item_bytes(x.dtype));
  steps.add(bytes / call.target.copy_bytes);
  return steps.cost;
}

double seconds(const Call& call, double bytes, double bytes_per_second) {
  return bytes_per_second == 0 ? 0 : bytes / bytes_per_second * call.target.clock_hz;
}

// Bytes from or to the host; the call of the program itself does not count.
template <bool is_result>
Cost stream_cost(const Call& call) {
  Steps steps(call);
  const double bytes = is_result ? ops::results_bytes(call) : ops::operands_bytes(call);
  steps.add(0, seconds(call, bytes, call.target.host_bytes_per_second));
  return steps.cost;
}

Cost remote_cost(const Call& call) {
  Steps steps(call);
  steps.add(0, seconds(call, ops::operands_bytes(call), call.target.streaming_bytes_per_second));
  return steps.cost;
}

}  // namespace

std::vector<CostRow> move_costs() {
  std::vector<CostRow> rows = {{"input", free_cost},           {"state", free_cost},
                               {"constant", free_cost},        {"nop", free_cost},
                               {"loop", free_cost},            {"strategy", free_cost},
                               {"tensor_location", free_cost}, {"assign", clone_cost},
                               {"clone", clone_cost},          {"contiguous", copy_cost},
                               {"cat", copy_cost},             {"repeat", copy_cost},
                               {"flip", copy_cost},            {"roll", copy_cost},
                               {"constant_pad_nd", copy_cost}, {"slice_scatter", copy_cost},
                               {"slice_backward", copy_cost},  {"diagonal_scatter", copy_cost},
                               {"diagonal_backward", copy_cost}, {"dynamic_slice", copy_cost},
                               {"dynamic_update", copy_cost},  {"im2col", copy_cost},
                               {"upsample_nearest2d", copy_cost}, {"stream_in", stream_cost<true>},
                               {"stream_out", stream_cost<false>}, {"remote_load", remote_cost},
                               {"remote_store", remote_cost}};
  for (const ops::OpDef& row : ops::op_table()) {
    if (row.view) rows.push_back({row.name, free_cost});
  }
  return rows;
}

}  // namespace poptorch::device
