#include "device/cost/cost.h"

#include <algorithm>
#include <map>

#include "device/cost/multi_conv.h"
#include "device/cost/steps.h"
#include "ir/copy.h"
#include "ops/op_def.h"
#include "support/error.h"
#include "support/mutant.h"

namespace poptorch::device {

namespace {

struct FamilyRow {
  Family family;
  std::vector<CostRow> (*rows)();
};

// Error bars: of the published points where there are some (docs/internals/device_model.md), with a
// margin for other shapes; 30 % where a public formula of a vertex stands for the op; else 50 %.
const FamilyRow families[] = {
    {{"collective", 0.5}, collective_costs},
    {{"convolution", 0.2}, convolution_costs},
    {{"elementwise", 0.3}, elementwise_costs},
    {{"indexing", 0.25}, indexing_costs},
    {{"loss", 0.5}, loss_costs},
    {{"move", 0.5}, move_costs},
    {{"norm", 0.3}, norm_costs},
    {{"pooling", 0.5}, pooling_costs},
    {{"product", 0.2}, product_costs},
    {{"recurrent", 0.3}, recurrent_costs},
    {{"reduction", 0.5}, reduction_costs},
    {{"sorting", 0.5}, sorting_costs},
};
constexpr Family elementwise_family = {"elementwise", 0.3};
// The least by bytes and FLOPs: a real program may take twice as long, or longer.
constexpr Family bound_family = {"bound", 1.0};

struct KnownRule {
  Rule rule;
  const Family* family;
};

const std::map<std::string, KnownRule>& rules() {
  static const std::map<std::string, KnownRule> all = [] {
    std::map<std::string, KnownRule> out;
    for (const FamilyRow& family : families) {
      for (const CostRow& row : family.rows()) {
        out.emplace(row.name.str(), KnownRule{row.rule, &family.family});
      }
    }
    return out;
  }();
  return all;
}

// What the op says of itself goes before the settings of the program.
Settings own_settings(const ir::Op& op, Settings settings) {
  if (MUTANT(ignores_proportion)) settings.memory_proportion = Settings().memory_proportion;
  if (MUTANT(ignores_partials)) settings.partial_bytes = Settings().partial_bytes;
  if (!MUTANT(ignores_own_proportion)) {
    settings.memory_proportion =
        op.attrs.get_float(ir::attr::available_memory, settings.memory_proportion);
  }
  const ir::Attr* partials = op.attrs.find(ir::attr::partials_type);
  if (partials != nullptr && !MUTANT(ignores_own_partials)) {
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
  if (!MUTANT(ignores_io_tiles)) part.tiles -= settings.io_tiles;
  return part;
}

Cost cost_of(const ir::Op& op, const Target& target, const Settings& settings) {
  if (op.attrs.has(im2col)) return {};
  const ops::OpDef& row = ops::op_def(op.name);
  ir::Op whole = ir::copy_apart(op);
  whole.attrs = ops::complete_attrs(row, op.attrs);
  Target part = compute_part(target, settings);
  part.tiles = op.attrs.get_int(multi_conv_tiles, part.tiles);
  const Call call(whole, part, own_settings(op, settings));
  const auto found = rules().find(op.name.str());
  Cost cost = found != rules().end() ? found->second.rule(call)
              : row.elementwise      ? elementwise_cost(call)
                                     : bound_of(call);
  if (op.attrs.has(multi_conv_cycles)) {
    cost.scale(op.attrs.get_float(multi_conv_cycles) / cost.cycles());
  }
  return cost;
}

const Family& family_of(ir::OpName name) {
  if (const auto found = rules().find(name.str()); found != rules().end()) {
    return *found->second.family;
  }
  return ops::op_def(name).elementwise ? elementwise_family : bound_family;
}

double peak_with_gaps(const Cost& cost, const Target& target) {
  const double below = cost.always_bytes + cost.operand_bytes + cost.temporary_bytes -
                       cost.interleaved_bytes;
  const auto start = static_cast<double>(target.interleaved_start);
  constexpr double reserved = 24;
  if (cost.interleaved_bytes > 0) {
    return start + reserved + cost.interleaved_bytes + std::max(0.0, below - start);
  }
  return below + (cost.has_elements ? static_cast<double>(target.element_bytes) : 0);
}

}  // namespace poptorch::device
