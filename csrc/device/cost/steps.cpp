#include "device/cost/steps.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "device/partition/plan.h"

namespace poptorch::device {

namespace {

// Bytes of a tensor that stay on one tile, however few there are.
constexpr double least_bytes = 128;
// State of a vertex on each tile, and code of the exchange before it, for one step.
constexpr double step_bytes = 77;

// Change of layout between the passes of a layer, cycles an element on a tile: activations that the
// forward pass left in its own order, and the gradient of the weights in the order of the weights.
constexpr double activation_layout = 1.2;
constexpr double gradient_layout = 2.7;

const char* name_of(Vertex vertex) {
  switch (vertex) {
    case Vertex::amp: return "amp";
    case Vertex::slic: return "slic";
    case Vertex::hmac: return "hmac";
    case Vertex::vmac: return "vmac";
    case Vertex::outer: return "outer";
  }
  return "";
}

std::string words_of(const Plan& plan) {
  const Splits& x = plan.splits;
  std::ostringstream out;
  out << name_of(plan.method.vertex) << " in_group=" << plan.method.in_group
      << " out_group=" << plan.method.out_group << " groups=" << x.groups << " out=" << x.out
      << " in=" << x.in << " kernel=" << x.kernel << " batch=" << x.batch << " field=" << x.outer
      << "x" << x.inner << " serial=" << x.serial() << (plan.form.is_swapped ? " swapped" : "");
  return out.str();
}

double size_of_weights(const Problem& p) {
  return static_cast<double>(p.groups * p.batch * p.out_channels) *
         static_cast<double>(p.field[0].output * p.field[1].output);
}

double size_of_activations(const Problem& p) {
  return static_cast<double>(p.groups * p.batch * p.in_channels) *
         static_cast<double>(p.field[0].input * p.field[1].input);
}

// Sum of `elements` of a tile by all its workers; those that share a sum add theirs up.
double own_cycles(double elements, int64_t item_bytes, const Target& target) {
  constexpr double base = 39;
  return workers_cycles(std::ceil(elements * static_cast<double>(item_bytes) / 8), 3, target, base);
}

}  // namespace

double Call::share(double elements, int64_t item_bytes) const {
  const double least = least_bytes / static_cast<double>(item_bytes);
  return std::max(std::ceil(elements / static_cast<double>(target.tiles)),
                  std::min(elements, least));
}

double Call::share(const ir::Type& type) const {
  return share(ops::numel(type), ir::item_bytes(type.dtype));
}

Steps::Steps(const Call& call) : call_(call) {
  const auto tiles = static_cast<double>(call.target.tiles);
  cost.compute = call.target.op_cycles;
  cost.operand_bytes = (ops::operands_bytes(call) + ops::results_bytes(call)) / tiles;
  cost.has_elements = call.count() > 1;
}

void Steps::add(double compute, double exchange, double times) {
  const Target& target = call_.target;
  cost.compute += times * (compute + target.launch_cycles);
  cost.exchange += times * (exchange + target.step_cycles - target.sync_cycles -
                            target.launch_cycles);
  cost.sync += times * target.sync_cycles;
  cost.steps += times;
  cost.always_bytes += step_bytes;
}

void Steps::add_elementwise(double elements, int64_t item_bytes, double cycles, double times) {
  const double vectors = std::ceil(elements * static_cast<double>(item_bytes) / 8);
  add(workers_cycles(vectors, cycles, call_.target), 0, times);
}

void Steps::add_copy(double elements, int64_t item_bytes, double times) {
  // Four elements of 2 bytes take five cycles, as many of 4 bytes too.
  const auto bytes = static_cast<double>(item_bytes);
  add(elements * 1.25, elements * bytes / call_.target.exchange_bytes, times);
  use_temporary(2 * elements * bytes);
}

void Steps::add_reduction(double outputs, double depth, int64_t item_bytes, double times) {
  add(reduce_cycles(outputs, depth, static_cast<double>(item_bytes), call_.target), 0, times);
}

void Steps::add_tree(double outputs, double depth, int64_t item_bytes, double times,
                     bool is_cast) {
  const auto tiles = static_cast<double>(call_.target.tiles);
  const double inputs = call_.share(outputs * depth, item_bytes);
  const double own_outputs = std::max(1.0, std::ceil(outputs / tiles));
  const double own = std::min(depth, std::max(1.0, inputs / own_outputs));
  const double left = std::ceil(depth / own);
  add(own_cycles(inputs, item_bytes, call_.target), 0, times);
  const double stages = left <= 1 ? 0 : left >= 8 ? 2 : 1;
  const double factor = stages == 0 ? 1 : std::ceil(std::pow(left, 1 / stages));
  for (double stage = stages; stage > 0; --stage) {
    const double part = std::ceil(outputs * std::pow(factor, stage - 1) / tiles);
    add(own_cycles(part * factor, 4, call_.target),
        part * factor * 4 / call_.target.exchange_bytes, times);
  }
  // Fitted to ten rows, one step.
  if (is_cast && item_bytes == 2 && stages > 0) add_elementwise(own_outputs, 4, 1, times);
  use_temporary(4 * outputs * left / tiles);
}

void Steps::add_product(const Problem& problem, double times) {
  const Target& target = call_.target;
  const auto tiles = static_cast<double>(target.tiles);
  const Plan plan = plan_of(problem, target, call_.settings.memory_proportion);
  double layout = 0;
  if (problem.is_layer && problem.pass == Pass::weight_update) {
    layout = activation_layout * std::ceil(size_of_activations(problem) / tiles) +
             gradient_layout * std::ceil(size_of_weights(problem) / tiles);
  }
  const double steps = plan.steps;
  const double own = target.step_cycles - target.sync_cycles;
  // The planner's copies take a tenth less than its estimate of them: fitted.
  const double rearrange = 0.89 * plan.rearrange;
  cost.compute += times * (plan.compute + rearrange / 2 + layout + steps * target.launch_cycles);
  cost.exchange += times * (plan.exchange + rearrange / 2 + steps * (own - target.launch_cycles));
  cost.sync += times * steps * target.sync_cycles;
  cost.steps += times * steps;
  cost.always_bytes += steps * step_bytes;
  use_temporary(plan.temporary_bytes);
  if (plan.method.vertex == Vertex::amp || plan.method.vertex == Vertex::slic) {
    cost.interleaved_bytes = std::max(cost.interleaved_bytes, plan.partial_bytes);
  }
  cost.plan += (cost.plan.empty() ? "" : "; ") + words_of(plan);
}

void Steps::use_temporary(double bytes) {
  cost.temporary_bytes = std::max(cost.temporary_bytes, bytes);
}

double workers_cycles(double vectors, double each, const Target& target, double base) {
  const auto workers = static_cast<double>(target.workers);
  return (base + std::ceil(vectors / workers) * each) * workers;
}

}  // namespace poptorch::device
