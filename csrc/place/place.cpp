#include "place/place.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "place/collectives.h"
#include "support/error.h"

namespace poptorch::place {

namespace {

class Placer {
 public:
  Placer(ir::Module& module, const Strategy& strategy) : module_(module), strategy_(strategy) {}

  // `start`: where ops before the first block are.
  void place(const ir::Graph& graph, const Spot& start) {
    note_last_uses(graph);
    Spot current = start;
    bool has_updates = false;
    for (const auto& op : graph.ops) {
      if (!has_updates && ir::part_of(*op) == ir::Part::update) {
        has_updates = true;
        find_updates(graph);
      }
      if (is_source(*op) || op->name == ir::op::strategy) continue;
      if (ir::has_bodies(*op)) {
        place_around(*op, current);
      } else {
        place(*op, current);
      }
    }
    // Unused ops.
    for (const auto& op : graph.ops) spots_.try_emplace(op.get(), start);
  }

  std::vector<Share> shares() const {
    std::map<Spot, Share> shares;
    for (const auto& [name, spot] : strategy_.blocks()) shares[spot].blocks.push_back(name);
    for (const ir::Op* op : module_.all_ops()) {
      const bool is_computed = !is_source(*op) && ir::runs_on_ipu(op->name);
      if (is_computed) add_op(*op, shares[spots_.at(op)]);
      if (is_state(*op)) add_state(*op, shares[*find(*op)]);
    }
    std::vector<Share> rows;
    for (auto& [spot, share] : shares) {
      share.spot = spot;
      rows.push_back(std::move(share));
    }
    return rows;
  }

  void write(ir::Graph& graph) const {
    const std::unordered_set<const ir::Op*> sums = accumulators(graph);
    for (const auto& op : graph.ops) {
      op->attrs.erase(ir::attr::block);
      if (!ir::runs_on_ipu(op->name)) continue;
      const Spot spot = is_state(*op) ? *find(*op) : spots_.at(op.get());
      op->attrs.set(ir::attr::ipu, spot.ipu);
      op->attrs.set(ir::attr::stage, spot.stage);
      if (strategy_.is_phased()) op->attrs.set(ir::attr::phase, phase_of(*op, spot.phase));
      const std::string_view role = sums.contains(op.get()) ? "accumulator" : kept_role(*op);
      const bool is_off_chip = !role.empty() && strategy_.is_off_chip(role, op->result()->type);
      if (is_off_chip) op->attrs.set(ir::attr::off_chip, true);
    }
  }

 private:
  static void add_op(const ir::Op& op, Share& share) {
    ++share.ops;
    const std::string& module = op.source_location.module;
    if (module.empty() || ir::part_of(op) != ir::Part::forward) return;
    // From the end: most ops are of the module of the one before.
    const auto known = std::find(share.modules.rbegin(), share.modules.rend(), module);
    if (known == share.modules.rend()) share.modules.push_back(module);
  }

  static void add_state(const ir::Op& op, Share& share) {
    if (!(ops::attr_of(op, ir::attr::role) == ir::Attr("parameter"))) return;
    const std::string& path = op.attrs.get_string(ir::attr::path);
    const auto known = std::find(share.parameters.begin(), share.parameters.end(), path);
    if (known != share.parameters.end()) return;  // another graph reads it too
    share.parameters.push_back(path);
    share.parameter_elements += op.result()->type.numel();
    share.parameter_bytes += op.result()->type.bytes();
  }

  static bool is_state(const ir::Op& op) { return op.name == ir::op::state; }

  // The role of a state that may be kept in streaming memory.
  static std::string_view kept_role(const ir::Op& op) {
    if (!is_state(op)) return "";
    const ir::Attr role = ops::attr_of(op, ir::attr::role);
    for (const char* kept : {"parameter", "optimizer"}) {
      if (role == ir::Attr(kept)) return kept;
    }
    return "";
  }

  // The carried values that gradients are added to.
  static std::unordered_set<const ir::Op*> accumulators(const ir::Graph& graph) {
    std::unordered_set<const ir::Op*> found;
    for (const auto& op : graph.ops) {
      if (op->name != ir::op::accumulate) continue;
      const ir::Op* sum = op->operand(0)->op;
      if (sum->name == ir::op::input) found.insert(sum);
    }
    return found;
  }

  // What leaves or binds a value.
  static bool is_sink(const ir::Op& op) {
    return op.name == ir::op::stream_out || op.name == ir::op::assign;
  }

  // Ops without a block that only make a new value for a state: they are on the IPU of the state.
  void note_last_uses(const ir::Graph& graph) {
    const std::unordered_map<const ir::Value*, int> uses = graph.count_uses();
    for (const auto& op : graph.ops) {
      if (op->name != ir::op::assign) continue;
      const ir::Op& maker = *op->operand(0)->op;
      const bool is_free = !maker.attrs.has(ir::attr::block) && !ir::has_bodies(maker) &&
                           maker.results.size() == 1 && uses.at(maker.result()) == 1;
      if (is_free) made_for_[&maker] = op->attrs.get_string(ir::attr::path);
    }
  }

  void place(const ir::Op& op, Spot& current) {
    const ir::Part part = ir::part_of(op);
    const std::optional<Spot> beside = beside_of(op, part);
    Spot spot = current;
    if (op.attrs.has(ir::attr::block)) {
      spot = strategy_.spot_of(op.attrs.get_string(ir::attr::block));
    } else if (beside) {
      spot = *beside;
    }
    if (part == ir::Part::forward && !is_sink(op) && !made_for_.contains(&op)) current = spot;
    spots_[&op] = spot;
    if (op.name == ir::op::assign) states_.try_emplace(op.attrs.get_string(ir::attr::path), spot);
    for (const ir::Value* operand : op.operands) {
      if (operand != nullptr) claim(*operand->op, spot);
    }
  }

  // Ops of an update that compute with whole tensors are where these are, also where the first
  // operand is a number. States of the optimizer get their place by it. All else is placed.
  void find_updates(const ir::Graph& graph) {
    std::vector<const ir::Op*> ops;
    for (const auto& op : graph.ops) {
      const bool is_one = ir::part_of(*op) == ir::Part::update && !is_source(*op) &&
                          !is_sink(*op) && !ir::has_bodies(*op) && op->results.size() > 0;
      if (is_one) ops.push_back(op.get());
    }
    for (const ir::Op* op : ops) {
      if (const auto spot = beside_tensor(*op)) updates_.emplace(op, *spot);
    }
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      const auto spot = updates_.find(*op);
      if (spot == updates_.end()) continue;
      for (const ir::Value* operand : (*op)->operands) {
        const bool is_open = operand != nullptr && !is_number(*operand) &&
                             ir::part_of(*operand->op) == ir::Part::update &&
                             !is_source(*operand->op) && !ir::has_bodies(*operand->op);
        if (is_open) updates_.try_emplace(operand->op, spot->second);
      }
    }
  }

  // Where the tensors are that an op of an update reads: a state, or else the first.
  std::optional<Spot> beside_tensor(const ir::Op& op) const {
    std::optional<Spot> first;
    for (const ir::Value* operand : op.operands) {
      if (operand == nullptr || is_number(*operand)) continue;
      const auto known = updates_.find(operand->op);
      const auto spot = known == updates_.end() ? spot_of(*operand) : known->second;
      if (spot && is_state(*operand->op)) return spot;
      if (!first) first = spot;
    }
    return first;
  }

  static bool is_number(const ir::Value& value) { return value.type.numel() == 1; }

  // That of the op, or else the first one in its bodies. Loops of the model have a part, those
  // around the step have none.
  std::optional<std::string> block_of(const ir::Op& op) const {
    if (op.attrs.has(ir::attr::block)) return op.attrs.get_string(ir::attr::block);
    if (!op.attrs.has(ir::attr::part)) return std::nullopt;
    for (const ir::Graph* body : ir::bodies_of(module_, op)) {
      for (const auto& inner : body->ops) {
        if (const auto block = block_of(*inner)) return block;
      }
    }
    return std::nullopt;
  }

  // What a loop starts from lies where its body takes it.
  void place_around(const ir::Op& op, const Spot& current) {
    const std::optional<std::string> block = block_of(op);
    const Spot spot = block ? strategy_.spot_of(*block) : current;
    spots_[&op] = spot;
    for (const ir::Graph* body : ir::bodies_of(module_, op)) {
      place(*body, spot);
      for (const auto& inner : body->ops) {
        if (inner->name != ir::op::input) continue;
        claim(*op.operand(static_cast<size_t>(inner->attrs.get_int(ir::attr::index)))->op,
              spots_.at(inner.get()));
      }
    }
    for (const ir::Value* operand : op.operands) claim(*operand->op, spots_.at(&op));
  }

  std::optional<Spot> beside_of(const ir::Op& op, ir::Part part) const {
    if (op.name == ir::op::stream_out) return spot_of(*op.operand(0));
    if (op.name == ir::op::assign) {
      const auto state = states_.find(op.attrs.get_string(ir::attr::path));
      return state == states_.end() ? spot_of(*op.operand(0)) : state->second;
    }
    if (const auto path = made_for_.find(&op);
        part == ir::Part::forward && path != made_for_.end()) {
      const auto state = states_.find(path->second);
      if (state != states_.end()) return state->second;
    }
    if (part == ir::Part::forward) return std::nullopt;
    if (const auto update = updates_.find(&op); update != updates_.end()) return update->second;
    std::optional<Spot> first, last_made;
    for (const ir::Value* operand : op.operands) {
      if (operand == nullptr) continue;
      const std::optional<Spot> spot = spot_of(*operand);
      const bool decides = part == ir::Part::update ? is_state(*operand->op)
                                                    : is_forward_value(*operand->op);
      if (spot && decides) return spot;
      if (!first) first = spot;
      // Gradients are made from the last stage to the first.
      const bool is_gradient = part == ir::Part::backward && !is_source(*operand->op);
      if (spot && is_gradient && (!last_made || *spot < *last_made)) last_made = spot;
    }
    return last_made ? last_made : first;
  }

  static bool is_forward_value(const ir::Op& op) {
    return !is_source(op) && !ir::has_bodies(op) && ir::part_of(op) == ir::Part::forward;
  }

  // The first user of a source has it at its place.
  void claim(const ir::Op& source, const Spot& spot) {
    if (!is_source(source)) return;
    if (is_state(source)) {
      states_.try_emplace(source.attrs.get_string(ir::attr::path), spot);
    } else {
      spots_.try_emplace(&source, spot);
    }
  }

  std::optional<Spot> find(const ir::Op& op) const {
    if (is_state(op)) {
      const auto state = states_.find(op.attrs.get_string(ir::attr::path));
      return state == states_.end() ? strategy_.outside() : state->second;
    }
    const auto found = spots_.find(&op);
    return found == spots_.end() ? std::nullopt : std::optional(found->second);
  }

  // Nothing where the value is a source that is not claimed yet.
  std::optional<Spot> spot_of(const ir::Value& value) const {
    const ir::Op& op = ir::maker_of(module_, value);
    if (is_state(op) && !states_.contains(op.attrs.get_string(ir::attr::path))) return std::nullopt;
    return find(op);
  }

  int64_t phase_of(const ir::Op& op, int64_t forward_phase) const {
    return strategy_.phase_number(forward_phase, ir::part_of(op));
  }

  ir::Module& module_;
  const Strategy& strategy_;
  std::unordered_map<const ir::Op*, Spot> spots_;
  std::unordered_map<std::string, Spot> states_;  // by path: one place in all graphs
  std::unordered_map<const ir::Op*, Spot> updates_;
  std::unordered_map<const ir::Op*, std::string> made_for_;  // paths of states
};

Strategy take_strategy(ir::Module& module) {
  const ir::Op* op = find_strategy(module);
  Strategy strategy = op == nullptr ? Strategy() : Strategy(*op);
  ir::Graph* main = module.find_graph("main");
  if (main == nullptr) return strategy;
  for (const auto& op : main->ops) {
    if (op->name == ir::op::tensor_location) strategy.locate(*op);
  }
  std::erase_if(main->ops, [](const auto& op) { return op->name == ir::op::tensor_location; });
  return strategy;
}

// What the op `strategy` says of a program whose ops have their stages, and no blocks any more.
void write_strategy(const ir::Module& module) {
  ir::Op* strategy = find_strategy(module);
  if (strategy == nullptr) return;
  int64_t last = 0;
  for (const ir::Op* op : module.all_ops()) {
    last = std::max(last, op->attrs.get_int(ir::attr::stage, 0));
  }
  strategy->attrs.erase(ir::attr::blocks);
  strategy->attrs.erase(ir::attr::outside);
  strategy->attrs.set(ir::attr::stages, last + 1);
}

void count_copies(const ir::Module& module, std::vector<Share>& shares) {
  for (const ir::Op* op : module.all_ops()) {
    if (op->name != ir::op::ipu_copy) continue;
    for (Share& share : shares) {
      const bool is_here = share.spot.ipu == op->attrs.get_int(ir::attr::ipu) &&
                           share.spot.stage == op->attrs.get_int(ir::attr::stage);
      if (is_here) share.copied_bytes += op->attrs.get_int(ir::attr::bytes);
    }
  }
}

}  // namespace

ir::Op* find_strategy(const ir::Module& module) {
  const ir::Graph* main = module.find_graph("main");
  if (main == nullptr) return nullptr;
  const auto found = std::find_if(main->ops.begin(), main->ops.end(), [](const auto& op) {
    return op->name == ir::op::strategy;
  });
  return found == main->ops.end() ? nullptr : found->get();
}

bool is_source(const ir::Op& op) {
  const ops::OpDef* row = ops::find_op(op.name);
  return op.operands.empty() && !op.results.empty() && row != nullptr && !row->effects &&
         !ops::is_foreign(op);
}

std::vector<Share> place(ir::Module& module) {
  const Strategy strategy = take_strategy(module);
  Placer placer(module, strategy);
  // `main` first: it says where the states are.
  const std::vector<ir::Graph*> entries = module.entries();
  for (auto graph = entries.rbegin(); graph != entries.rend(); ++graph) {
    placer.place(**graph, strategy.outside());
  }
  std::vector<Share> shares = placer.shares();
  for (const auto& graph : module.graphs) placer.write(*graph);
  insert_moves(module, strategy);
  merge_all_reduces(module);
  write_shard_bytes(module);
  write_strategy(module);
  count_copies(module, shares);
  return shares;
}

}  // namespace poptorch::place
