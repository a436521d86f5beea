#include "device/cost/cost.h"

#include <algorithm>
#include <map>

#include "device/cost/multi_conv.h"
#include "device/cost/steps.h"
#include "ir/copy.h"
#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::device {

namespace {

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> all = [] {
    std::map<std::string, Rule> out;
    for (const auto family :
         {collective_costs, convolution_costs, elementwise_costs, indexing_costs, loss_costs,
          move_costs, norm_costs, pooling_costs, product_costs, recurrent_costs, reduction_costs,
          sorting_costs}) {
      for (const CostRow& row : family()) out.emplace(row.name.str(), row.rule);
    }
    return out;
  }();
  return all;
}

// What the op says of itself goes before the settings of the program.
Settings own_settings(const ir::Op& op, Settings settings) {
  settings.memory_proportion =
      op.attrs.get_float(ir::attr::available_memory, settings.memory_proportion);
  if (const ir::Attr* partials = op.attrs.find(ir::attr::partials_type)) {
    settings.partial_bytes = *partials == ir::Attr("half") ? 2 : 4;
  }
  return settings;
}

// No program does less: all bytes pass the memory of the tiles, all FLOPs the vector unit.
Cost bound_of(const Call& call) {
  const ops::Work work = ops::work_of(call.op);
  const auto tiles = static_cast<double>(call.target.tiles);
  Steps steps(call);
  const double vectors = std::max(work.bytes / 8, work.flops.value_or(0) / 2) / tiles;
  steps.add(vectors);
  steps.cost.is_bound = true;
  return steps.cost;
}

}  // namespace

Target compute_part(const Target& target, const Settings& settings) {
  USER_CHECK(settings.io_tiles < target.tiles, "[numIOTiles] ", settings.io_tiles,
             " I/O tiles leave no tile to compute: an IPU of the target \"", target.name,
             "\" has ", target.tiles, " tiles. Use fewer I/O tiles.");
  Target part = target;
  part.tiles -= settings.io_tiles;
  return part;
}

Cost cost_of(const ir::Op& op, const Target& target, const Settings& settings) {
  const ops::OpDef& row = ops::op_def(op.name);
  ir::Op whole = ir::copy_apart(op);
  whole.attrs = ops::complete_attrs(row, op.attrs);
  Target part = compute_part(target, settings);
  part.tiles = op.attrs.get_int(multi_conv_tiles, part.tiles);
  const Call call(whole, part, own_settings(op, settings));
  const auto found = rules().find(op.name.str());
  Cost cost = found != rules().end() ? found->second(call)
              : row.elementwise      ? elementwise_cost(call)
                                     : bound_of(call);
  if (op.attrs.has(multi_conv_cycles)) {
    cost.scale(op.attrs.get_float(multi_conv_cycles) / cost.cycles());
  }
  return cost;
}

double peak_with_gaps(const Cost& cost, const Target& target) {
  const double below = cost.always_bytes + cost.operand_bytes + cost.temporary_bytes -
                       cost.interleaved_bytes;
  const auto start = static_cast<double>(target.interleaved_start);
  constexpr double reserved = 24;
  if (cost.interleaved_bytes > 0) {
    return start + reserved + cost.interleaved_bytes + std::max(0.0, below - start);
  }
  return static_cast<double>(target.element_bytes) + below;
}

}  // namespace poptorch::device
