// The rules of ir/verify.h about where ops run, and in which order.
#include <algorithm>
#include <map>
#include <set>

#include "ir/part.h"
#include "ops/op_def.h"
#include "ops/verify/verify_parts.h"

namespace poptorch::ir {

namespace {

class PlaceVerifier : Where {
 public:
  explicit PlaceVerifier(const Module& module) : module_(module) {
    for (const auto& graph : module.graphs) {
      auto& inputs = inputs_[graph->name];
      for (const auto& op : graph->ops) {
        if (op->name == ir::op::input) inputs.emplace(op->attrs.get_int(ir::attr::index), op.get());
        if (op->name == ir::op::task) task_bodies_.insert(op->attrs.get_graph(ir::attr::body));
      }
    }
  }

  // Each op that runs on an IPU has this attribute, a number of at least 0.
  void has_number(ir::AttrName name) {
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        if (runs_on_ipu(op->name)) check_number(*op, name);
      }
    }
  }

  // Every op has this attribute, a number of at least 0 that rises.
  void has_rising_number(ir::AttrName name) {
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      int64_t last = -1;
      for (const auto& op : graph->ops) {
        const int64_t number = check_number(*op, name);
        RULE(number > last, "has ", name, "=", number, ", the op before has ", last,
             ": it must rise");
        last = number;
      }
    }
  }

  // Of the ops that run on an IPU.
  void all_or_none_have(ir::AttrName name) {
    bool has_first = false, is_first = true;
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        if (!runs_on_ipu(op->name) || op->name == ir::op::task) continue;
        op_ = op.get();
        if (is_first) has_first = op->attrs.has(name);
        is_first = false;
        RULE(op->attrs.has(name) == has_first, has_first ? "needs" : "has", " `", name,
             "`, other ops ", has_first ? "have it" : "do not");
      }
    }
  }

  // What is read lies on the IPU that reads it; only moves reach elsewhere.
  void is_moved() {
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        op_ = op.get();
        if (op->name == ir::op::stream_out) continue;  // the host reads any IPU
        for (size_t i = 0; i < op->operands.size(); ++i) {
          if (op->operands[i] != nullptr) check_moved(*op, i);
        }
      }
      op_ = nullptr;
      // What a task gives is not what it takes the next time.
      if (task_bodies_.contains(graph->name)) continue;
      const auto& inputs = inputs_[graph->name];
      for (size_t i = 0; i < graph->outputs.size(); ++i) {
        const auto input = inputs.find(static_cast<int64_t>(i));
        if (input == inputs.end()) continue;
        const int64_t ipu = ipu_of(*graph->outputs[i]);
        const int64_t wanted = input->second->attrs.get_int(ir::attr::ipu);
        RULE(ipu == wanted, "output ", i, " is on IPU ", ipu, ", the next round reads it on IPU ",
             wanted);
        check_carried(*graph->outputs[i], *input->second);
      }
    }
  }

 private:
  int64_t check_number(const Op& op, ir::AttrName name) {
    op_ = &op;
    const Attr* attr = op.attrs.find(name);
    const auto* number = attr == nullptr ? nullptr : std::get_if<int64_t>(&attr->value);
    RULE(number != nullptr && *number >= 0, "needs `", name, "`, a number of at least 0");
    return *number;
  }

  // A loop's result is where its body takes the value of the next round.
  int64_t ipu_of(const Value& value) const {
    if (value.op->name != ir::op::loop) return value.op->attrs.get_int(ir::attr::ipu);
    const std::string& body = value.op->attrs.get_graph(ir::attr::body);
    const auto& inputs = inputs_.at(body);
    const auto input = inputs.find(value.index);
    if (input != inputs.end()) return input->second->attrs.get_int(ir::attr::ipu);
    return ipu_of(*module_.find_graph(body)->outputs.at(static_cast<size_t>(value.index)));
  }

  bool is_in_streaming_memory(const Value& value) const {
    const Op* op = value.op;
    if (op->name == ir::op::loop) {
      const auto& inputs = inputs_.at(op->attrs.get_graph(ir::attr::body));
      const auto input = inputs.find(value.index);
      if (input == inputs.end()) return false;
      op = input->second;
    }
    return op->name == ir::op::remote_store || op->attrs.get_bool(ir::attr::off_chip, false);
  }

  void check_carried(const Value& value, const Op& input) const {
    RULE(is_in_streaming_memory(value) == input.attrs.get_bool(ir::attr::off_chip, false),
         "carries %", value.name, ", which is not in the memory where the next round takes it");
  }

  void check_moved(const Op& op, size_t index) const {
    const Value& value = *op.operand(index);
    const Op* reader = &op;
    if (op.name == ir::op::loop) {
      const auto& inputs = inputs_.at(op.attrs.get_graph(ir::attr::body));
      const auto input = inputs.find(static_cast<int64_t>(index));
      if (input == inputs.end()) return;
      reader = input->second;
      check_carried(value, *reader);
    }
    const bool is_remote = is_in_streaming_memory(value);
    if (op.name == ir::op::remote_load) {
      RULE(is_remote, "loads %", value.name, ", which is not in streaming memory");
      return;
    }
    RULE(!is_remote || op.name == ir::op::assign || op.name == ir::op::loop, "reads %", value.name,
         ", which is in streaming memory, without a remote_load");
    const int64_t wanted =
        reader->attrs.get_int(op.name == ir::op::ipu_copy ? ir::attr::from : ir::attr::ipu);
    RULE(ipu_of(value) == wanted, "reads %", value.name, " on IPU ", wanted, ", it is on IPU ",
         ipu_of(value));
  }

  const Module& module_;
  std::map<std::string, std::map<int64_t, const Op*>> inputs_;
  std::set<std::string> task_bodies_;
};

}  // namespace

void verify_parts(const Module& module) { PlaceVerifier(module).all_or_none_have(ir::attr::part); }

void verify_places(const Module& module) {
  PlaceVerifier verifier(module);
  verifier.has_number(ir::attr::ipu);
  verifier.has_number(ir::attr::stage);
  verifier.all_or_none_have(ir::attr::phase);
}

void verify_moves(const Module& module) { PlaceVerifier(module).is_moved(); }

void verify_order(const Module& module) {
  PlaceVerifier(module).has_rising_number(ir::attr::order);
}

bool is_placed(const Module& module) {
  return std::all_of(module.graphs.begin(), module.graphs.end(), [](const auto& graph) {
    return std::all_of(graph->ops.begin(), graph->ops.end(), [](const auto& op) {
      return !runs_on_ipu(op->name) || op->attrs.has(ir::attr::ipu);
    });
  });
}

}  // namespace poptorch::ir
