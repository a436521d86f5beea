// The second half of place: an op reads only what its own IPU has, in the phase in which it runs.
// What is elsewhere comes by `ipu_copy`; what is in streaming memory by `remote_load`, after a
// `remote_store` brought it there. Constants and other values without operands are made
// on each IPU that reads them.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "place/place.h"
#include "support/error.h"

namespace poptorch::place {

namespace {

constexpr std::array annotations = {ir::attr::ipu, ir::attr::part, ir::attr::phase,
                                    ir::attr::stage};

int64_t phase_of(const ir::Op& op) { return op.attrs.get_int(ir::attr::phase, 0); }

// What is known of the whole module, before anything is moved.
struct Known {
  const ir::Module& module;
  const Strategy& strategy;
  std::map<std::string, std::map<int64_t, const ir::Op*>> inputs;  // by graph and index
  std::map<std::string, std::string> off_chip;                     // roles of states, by path

  Known(const ir::Module& module, const Strategy& strategy) : module(module), strategy(strategy) {
    for (const auto& graph : module.graphs) {
      for (const auto& op : graph->ops) {
        if (op->name == ir::op::input) {
          inputs[graph->name][op->attrs.get_int(ir::attr::index)] = op.get();
        }
        if (op->name != ir::op::state || !is_off_chip(*op)) continue;
        off_chip[op->attrs.get_string(ir::attr::path)] = role_of(*op);
      }
    }
  }

  // The op by which a loop's body takes a carried value; nullptr: it does not.
  const ir::Op* input(const std::string& body, size_t index) const {
    const auto graph = inputs.find(body);
    if (graph == inputs.end()) return nullptr;
    const auto op = graph->second.find(static_cast<int64_t>(index));
    return op == graph->second.end() ? nullptr : op->second;
  }

  static bool is_off_chip(const ir::Op& op) { return op.attrs.get_bool(ir::attr::off_chip, false); }

  // A loop's result is where its body takes the value of the next round.
  bool is_off_chip(const ir::Value& value) const {
    const std::vector<std::string> bodies = ir::body_names(*value.op);
    if (bodies.empty()) return is_off_chip(*value.op);
    const ir::Op* op = input(bodies[0], static_cast<size_t>(value.index));
    return op != nullptr && is_off_chip(*op);
  }

  static std::string role_of(const ir::Op& state) {
    return std::get<std::string>(ops::attr_of(state, ir::attr::role).value);
  }

  // The kind of tensors that a value in streaming memory belongs to.
  static std::string role_of(const ir::Value& value) {
    const ir::Op& op = *value.op;
    if (op.name == ir::op::state) return role_of(op);
    return op.name == ir::op::remote_store ? "activation" : "accumulator";
  }

  // The op that is where the value is: for the result of a loop, one of its body.
  const ir::Op& op_beside(const ir::Value& value) const {
    const std::vector<ir::Graph*> bodies = ir::bodies_of(module, *value.op);
    if (bodies.empty()) return *value.op;
    const auto index = static_cast<size_t>(value.index);
    const ir::Op* op = input(bodies[0]->name, index);
    return op == nullptr ? op_beside(*bodies[0]->outputs.at(index)) : *op;
  }

  int64_t ipu_of(const ir::Value& value) const {
    return op_beside(value).attrs.get_int(ir::attr::ipu);
  }
};

// Whether the op makes the same values wherever it is.
bool is_made_anywhere(const ir::Op& op) {
  return is_source(op) && op.name != ir::op::state && op.name != ir::op::input &&
         op.name != ir::op::stream_in;
}

class Mover {
 public:
  Mover(const Known& known, ir::Graph& graph) : known_(known), graph_(graph) {}

  void run() {
    std::vector<std::unique_ptr<ir::Op>> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (auto& op : ops) {
      for (size_t i = 0; i < op->operands.size(); ++i) {
        if (op->operands[i] != nullptr) op->operands[i] = operand_of(*op, i);
      }
      graph_.ops.push_back(std::move(op));
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ir::Op* input = known_.input(graph_.name, i);
      if (input != nullptr) graph_.outputs[i] = carried(*input, graph_.outputs[i]);
    }
  }

 private:
  ir::Value* operand_of(const ir::Op& op, size_t index) {
    ir::Value* value = op.operands[index];
    if (op.name == ir::op::stream_out) return value;  // the host reads any IPU
    if (ir::has_bodies(op)) {
      const ir::Op* input = known_.input(ir::body_names(op)[0], index);
      return input == nullptr ? value : carried(*input, value);
    }
    value = reach(value, op);
    if (op.name != ir::op::assign) return value;
    const auto state = known_.off_chip.find(op.attrs.get_string(ir::attr::path));
    return state == known_.off_chip.end() ? value : stored(value, state->second);
  }

  // The value as `reader` can read it.
  ir::Value* reach(ir::Value* value, const ir::Op& reader) {
    const ir::Op& op = *value->op;
    if (known_.is_off_chip(*value)) return loaded(value, reader);
    const bool stays = is_made_anywhere(op) || op.name == ir::op::state ||
                       op.name == ir::op::input || ir::has_bodies(op) ||
                       op.attrs.get_bool(ir::attr::repeat, false);  // the host can send it again
    if (!stays && known_.strategy.leaves_chip(*value, reader)) {
      return loaded(stored(value, "activation"), reader);
    }
    return on_ipu_of(reader, value);
  }

  // The value where the body of a loop takes it.
  ir::Value* carried(const ir::Op& input, ir::Value* value) {
    const bool goes_off = Known::is_off_chip(input);
    if (known_.is_off_chip(*value) && !goes_off) return loaded(value, input);
    ir::Value* here = on_ipu_of(input, value);
    return goes_off && !known_.is_off_chip(*here) ? stored(here, "accumulator") : here;
  }

  ir::Value* on_ipu_of(const ir::Op& reader, ir::Value* value) {
    const int64_t ipu = reader.attrs.get_int(ir::attr::ipu);
    const int64_t from = known_.ipu_of(*value);
    if (from == ipu) return value;
    return is_made_anywhere(*value->op) ? made_beside(reader, *value)
                                        : copied(value, from, reader);
  }

  ir::Value* made_beside(const ir::Op& reader, const ir::Value& value) {
    const int64_t ipu = reader.attrs.get_int(ir::attr::ipu);
    const auto known = moved_.find({&value, ipu, 0});
    if (known != moved_.end()) return known->second;
    const ir::Op& op = *value.op;
    ir::Attrs attrs = op.attrs;
    for (const ir::AttrName name : annotations) copy_attr(reader, name, attrs);
    std::vector<ir::Type> types;
    std::vector<std::string> names;
    for (const auto& result : op.results) {
      types.push_back(result->type);
      names.push_back(result->name);
    }
    const ir::Op* made =
        graph_.append(op.name, {}, std::move(attrs), types, op.source_location, names);
    for (size_t i = 0; i < op.results.size(); ++i) {
      moved_[{op.result(i), ipu, 0}] = made->result(i);
    }
    return made->result(static_cast<size_t>(value.index));
  }

  ir::Value* copied(ir::Value* value, int64_t from, const ir::Op& reader) {
    const int64_t ipu = reader.attrs.get_int(ir::attr::ipu);
    ir::Value*& known = moved_[{value, ipu, 0}];
    if (known == nullptr) {
      ir::Attrs attrs = attrs_at(reader, *value);
      attrs.set(ir::attr::from, from);
      known = append(ir::op::ipu_copy, {value}, attrs, *value, concat(value->name, ".ipu", ipu));
    }
    return known;
  }

  ir::Value* stored(ir::Value* value, const std::string& role) {
    ir::Value*& known = stored_[value];
    if (known == nullptr) {
      ir::Attrs attrs = attrs_at(known_.op_beside(*value), *value);
      if (known_.strategy.location_of(role).stores_by_io_tiles) attrs.set(ir::attr::tiles, "io");
      known = append(ir::op::remote_store, {value}, attrs, *value, value->name + ".stored");
    }
    return known;
  }

  ir::Value* loaded(ir::Value* value, const ir::Op& reader) {
    const bool is_phased = known_.strategy.is_phased();
    const ir::Part part = ir::part_of(reader);
    const int64_t time = is_phased ? phase_of(reader) : static_cast<int64_t>(part);
    ir::Value*& known = moved_[{value, reader.attrs.get_int(ir::attr::ipu), time}];
    if (known == nullptr) {
      ir::Attrs attrs = attrs_at(reader, *value);
      const Location location = known_.strategy.location_of(Known::role_of(*value));
      if (location.loads_by_io_tiles) attrs.set(ir::attr::tiles, "io");
      known = append(ir::op::remote_load, {value}, attrs, *value,
                     is_phased ? concat(value->name, ".phase", time)
                               : concat(value->name, ".", ir::name_of(part)));
    }
    return known;
  }

  static ir::Attrs attrs_at(const ir::Op& op, const ir::Value& value) {
    ir::Attrs attrs;
    for (const ir::AttrName name : annotations) copy_attr(op, name, attrs);
    attrs.set(ir::attr::bytes, moved_bytes(value.type));
    return attrs;
  }

  static void copy_attr(const ir::Op& from, ir::AttrName name, ir::Attrs& to) {
    if (const ir::Attr* attr = from.attrs.find(name)) to.set(name, *attr);
  }

  ir::Value* append(ir::OpName op, std::vector<ir::Value*> operands, ir::Attrs attrs,
                    const ir::Value& like, const std::string& name) {
    return graph_
        .append(op, std::move(operands), std::move(attrs), {like.type}, like.op->source_location,
                {name})
        ->result();
  }

  const Known& known_;
  ir::Graph& graph_;
  // By value, IPU and phase, without phases part of the step (0 for copies, which stay until their
  // last use).
  std::map<std::tuple<const ir::Value*, int64_t, int64_t>, ir::Value*> moved_;
  std::unordered_map<const ir::Value*, ir::Value*> stored_;
};

}  // namespace

int64_t moved_bytes(const ir::Type& type) {
  return std::min(type.numel(), type.span()) * ir::item_bytes(type.dtype);
}

void insert_moves(ir::Module& module, const Strategy& strategy) {
  const Known known(module, strategy);
  for (const auto& graph : module.graphs) Mover(known, *graph).run();
}

}  // namespace poptorch::place
