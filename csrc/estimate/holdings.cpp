#include "estimate/holdings.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "device/cost/cost.h"
#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "place/ipus.h"
#include "schedule/schedule.h"
#include "support/mutant.h"
#include "tasks/edges.h"

namespace poptorch::estimate {

namespace {

constexpr int never = std::numeric_limits<int>::max();
constexpr int nowhere = -1;  // the value has no memory of its own

int64_t ipu_of(const ir::Op& op) { return op.attrs.get_int(ir::attr::ipu, 0); }
bool is_off_chip(const ir::Op& op) { return op.attrs.get_bool(ir::attr::off_chip, false); }

bool is_view(const ir::Op& op) {
  return ops::is_view(op) || op.attrs.has(device::im2col) || op.attrs.has(device::is_summed);
}

bool is_from_task(const ir::Op& op) {
  if (op.name == ir::op::task) return true;
  return ops::is_move(op) && is_from_task(*op.operand(0)->op);
}

Category category_of_state(const ir::Op& op) {
  if (is_off_chip(op) && !MUTANT(ignores_location)) return Category::streaming;
  const ir::Attr* role = op.attrs.find(ir::attr::role);
  if (role != nullptr && *role == ir::Attr("parameter")) return Category::parameters;
  if (role != nullptr && *role == ir::Attr("optimizer")) return Category::optimizer;
  return Category::constants;
}

class Finder {
 public:
  Finder(const ir::Module& module) : module_(module), line_(plan::make_timeline(module)) {
    for (const ir::Op* op : module.all_ops()) {
      for (const ir::Value* operand : op->operands) {
        if (operand != nullptr) users_[operand].push_back(op);
      }
    }
  }

  Holdings run() {
    for (const ir::Graph* graph : module_.entries()) walk(*graph);
    reuse();
    std::erase_if(found_.all, [](const Holding& one) {
      return one.bytes == 0 || (!one.is_always && one.span.begin == never);
    });
    found_.ipus = place::ipus_used(module_);
    return std::move(found_);
  }

 private:
  // A result that may take the memory of an operand when nothing reads it later.
  struct Reuse {
    int position;
    int result, operand;
  };

  int add(const ir::Value& value, Category category, int begin) {
    Holding one{value.name, category, ipu_of(*value.op), value.type.bytes(), value.op};
    one.span = {begin, begin == never ? 0 : begin};
    found_.all.push_back(std::move(one));
    return static_cast<int>(found_.all.size()) - 1;
  }

  int add_always(const ir::Value& value, Category category) {
    const int index = add(value, category, 0);
    Holding& one = at(index);
    one.is_always = true;
    one.bytes *= value.op->attrs.get_int(ir::attr::depth, 1);
    return index;
  }

  Holding& at(int index) { return found_.all[static_cast<size_t>(index)]; }
  int home(const ir::Value* value) const { return homes_.at(value); }
  void live_in(const ir::Value* value, int index) { homes_[value] = index; }

  void use(const ir::Value* value, int position) {
    const int index = home(value);
    if (index == nowhere) return;
    plan::Span& span = at(index).span;
    span.begin = std::min(span.begin, position);
    span.end = std::max(span.end, position);
  }

  void walk(const ir::Graph& graph) {
    if (tasks::has_tasks(graph)) round_begin_ = line_.graphs.at(&graph).begin;
    for (const auto& op : graph.ops) visit(*op);
    for (const ir::Value* output : graph.outputs) use(output, line_.graphs.at(&graph).end);
  }

  void visit(const ir::Op& op) {
    if (op.name == ir::op::input) return;  // by the op around
    if (op.name == ir::op::task) return visit_task(op);
    const plan::Span span = line_.ops.at(&op);
    if (!ops::is_move(op)) use_operands(op, span.begin);
    if (ir::has_bodies(op)) return visit_loop(op, span);
    if (ir::runs_on_ipu(op.name)) found_.turns.push_back({&op, ipu_of(op), span.begin});
    if (ops::is_move(op)) return visit_move(op, span.begin);
    if (op.name == ir::op::assign) return note_assigned(op);
    for (size_t i = 0; i < op.results.size(); ++i) make(op, i, span.begin);
  }

  void use_operands(const ir::Op& op, int position) {
    for (const ir::Value* operand : op.operands) {
      if (operand != nullptr) use(operand, position);
    }
  }

  void make(const ir::Op& op, size_t i, int position) {
    const ir::Value& value = *op.result(i);
    if (op.name == ir::op::state) return live_in(&value, home_of_state(value));
    if (op.name == ir::op::constant) return live_in(&value, home_of_constant(value));
    const bool is_sum = op.name == ir::op::accumulate;
    if (is_view(op) || is_sum) {
      live_in(&value, home(op.operand(0)));
      return use(&value, position);
    }
    const int index = add(value, Category::activations, position);
    live_in(&value, index);
    for (const int candidate : ops::inplace_candidates(op, i)) {
      const ir::Value* operand = op.operand(static_cast<size_t>(candidate));
      if (operand == nullptr || operand->type.bytes() != value.type.bytes()) continue;
      reuses_.push_back({position, index, home(operand)});
    }
  }

  int home_of_state(const ir::Value& value) {
    const std::string& path = value.op->attrs.get_string(ir::attr::path);
    const auto [known, is_new] = states_.try_emplace(path, nowhere);
    if (is_new) {
      known->second = add_always(value, category_of_state(*value.op));
      at(known->second).name = path;
    }
    return known->second;
  }

  int home_of_constant(const ir::Value& value) {
    const ir::Attr* data = value.op->attrs.find(ir::attr::hash);
    if (data == nullptr) data = value.op->attrs.find(ir::attr::data);
    const std::string text = data == nullptr ? value.name : data->text();
    const auto [known, is_new] =
        constants_.try_emplace({text, value.type.text(), ipu_of(*value.op)}, nowhere);
    if (is_new) known->second = add_always(value, Category::constants);
    return known->second;
  }

  // The end of a task takes what it gives on, wherever the line of time has the move.
  void visit_move(const ir::Op& op, int position) {
    const ir::Value& value = *op.result();
    const ir::Op& maker = *op.operand(0)->op;
    if (maker.name == ir::op::task) {
      use(op.operand(0), line_.ops.at(&maker).end);
    } else if (!is_from_task(maker)) {
      use(op.operand(0), position);
    }
    live_in(&value, home_of_moved(op, value, position));
  }

  int home_of_moved(const ir::Op& op, const ir::Value& value, int position) {
    if (op.name == ir::op::stash) {
      if (is_added_where_made(op)) return nowhere;
      const bool is_streaming = op.operand(0)->op->name == ir::op::remote_store;
      return add_always(value, is_streaming ? Category::streaming : Category::stashes);
    }
    if (op.name == ir::op::remote_store) {
      return is_kept(value) ? add_always(value, Category::streaming) : nowhere;
    }
    if (op.name == ir::op::remote_load) {
      return is_for_task(value) ? nowhere : add(value, Category::activations, position);
    }
    return home_of_copied(op, value, position);
  }

  // A copy for a task is there when the round begins. The others that there is room for always are.
  int home_of_copied(const ir::Op& op, const ir::Value& value, int position) {
    const int64_t depth = op.attrs.get_int(ir::attr::depth, 0);
    if (depth == 0) return add(value, Category::activations, position);
    if (depth > 1) at(add_always(value, Category::activations)).bytes -= value.type.bytes();
    return add(value, Category::activations, round_begin_);
  }

  // A gradient of a weight that stages of one IPU share. Both add to the accumulator on an IPU, so
  // the gradient does not wait for the other stage.
  bool is_added_where_made(const ir::Op& stash) const {
    const auto users = users_.find(stash.result());
    if (users == users_.end() || users->second.size() != 1) return false;
    const ir::Op& task = *users->second.front();
    if (task.name != ir::op::task) return false;
    const auto& inner = ir::body_of(module_, task).ops;
    const auto input = std::find_if(inner.begin(), inner.end(), [&](const auto& op) {
      return op->name == ir::op::input &&
             task.operand(static_cast<size_t>(op->attrs.get_int(ir::attr::index))) ==
                 stash.result();
    });
    return input != inner.end() && is_only_added((*input)->result());
  }

  // Whether the value is part of a sum that is added to an accumulator.
  bool is_only_added(const ir::Value* value) const {
    while (true) {
      const auto users = users_.find(value);
      if (users == users_.end() || users->second.size() != 1) return false;
      const ir::Op& user = *users->second.front();
      if (user.name == ir::op::accumulate) return user.operand(1) == value;
      const bool is_sum =
          user.name == ir::op::add || (user.name == ir::op::embedding_backward &&
                                       user.operand(0) != value);
      if (!is_sum || user.result()->type.sizes != value->type.sizes) return false;
      value = user.result();
    }
  }

  // What an assign or a loop takes has its place in streaming memory already.
  bool is_kept(const ir::Value& stored) const {
    const auto users = users_.find(&stored);
    return users != users_.end() &&
           std::any_of(users->second.begin(), users->second.end(),
                       [](const ir::Op* user) { return ops::is_move(*user); });
  }

  bool is_for_task(const ir::Value& value) const {
    const auto users = users_.find(&value);
    return users != users_.end() && users->second.front()->name == ir::op::task;
  }

  void visit_task(const ir::Op& task) {
    const ir::Graph& body = ir::body_of(module_, task);
    for (const auto& op : body.ops) {
      if (op->name != ir::op::input) continue;
      const ir::Value* operand =
          task.operand(static_cast<size_t>(op->attrs.get_int(ir::attr::index)));
      const bool is_brought =
          operand->op->name == ir::op::stash || operand->op->name == ir::op::remote_load;
      const bool is_here = !is_brought || (operand->op->name == ir::op::stash &&
                                           home(operand) == nowhere);
      live_in(op->result(), is_here ? home(operand)
                                    : add(*op->result(), Category::activations, never));
    }
    walk(body);
    for (size_t i = 0; i < task.results.size(); ++i) {
      live_in(task.result(i), home(body.outputs[i]));
    }
  }

  void visit_loop(const ir::Op& loop, const plan::Span& span) {
    const std::vector<ir::Graph*> bodies = ir::bodies_of(module_, loop);
    std::map<size_t, int> carried;  // homes of values that the body changes
    for (const ir::Graph* body : bodies) {
      for (const auto& op : body->ops) {
        if (op->name != ir::op::input) continue;
        const auto index = static_cast<size_t>(op->attrs.get_int(ir::attr::index));
        const ir::Value& value = *op->result();
        const bool is_changed = bodies.size() == 1 && index < body->outputs.size() &&
                                body->outputs[index] != &value;
        if (is_changed) carried[index] = add_carried(*body, value, *loop.operand(index), span);
        live_in(&value, is_changed ? carried[index] : home(loop.operand(index)));
      }
      walk(*body);
    }
    for (size_t i = 0; i < loop.results.size(); ++i) {
      const auto known = carried.find(i);
      live_in(loop.result(i),
              known == carried.end() ? home(bodies.front()->outputs[i]) : known->second);
      use(loop.result(i), span.end);
    }
  }

  int add_carried(const ir::Graph& body, const ir::Value& value, const ir::Value& operand,
                  const plan::Span& span) {
    if (is_off_chip(*value.op)) return add_always(value, Category::streaming);
    const bool is_sum = is_accumulated(value);
    const int index = is_sum ? add_always(value, Category::accumulators)
                             : add(value, Category::activations, span.begin);
    at(index).span.end = line_.graphs.at(&body).end;
    reuses_.push_back({span.begin, index, home(&operand)});
    return index;
  }

  // Whether gradients are added to the value, in a task too.
  bool is_accumulated(const ir::Value& value) const {
    const auto users = users_.find(&value);
    if (users == users_.end()) return false;
    return std::any_of(users->second.begin(), users->second.end(), [&](const ir::Op* user) {
      if (user->name == ir::op::accumulate) return user->operand(0) == &value;
      if (user->name != ir::op::task) return false;
      const auto& inner = ir::body_of(module_, *user).ops;
      return std::any_of(inner.begin(), inner.end(), [&](const auto& op) {
        return op->name == ir::op::input && is_accumulated(*op->result()) &&
               user->operand(static_cast<size_t>(op->attrs.get_int(ir::attr::index))) == &value;
      });
    });
  }

  // The new value of a state takes the memory of the old one, where the row of its op lets it.
  void note_assigned(const ir::Op& assign) {
    std::vector<int> chain;
    for (const ir::Value* value = assign.operand(0); value != nullptr;) {
      const ir::Op& op = *value->op;
      if (op.name == ir::op::state) {
        const auto& path = op.attrs.get_string(ir::attr::path);
        if (path != assign.attrs.get_string(ir::attr::path)) return;
        for (const int index : chain) at(index).bytes = 0;
        return;
      }
      if (home(value) != nowhere) chain.push_back(home(value));
      if (ops::is_move(op)) {
        value = op.operand(0);
        continue;
      }
      if (ir::has_bodies(op) || op.results.empty() || op.name == ir::op::input) return;
      const std::vector<int> places =
          ops::inplace_candidates(op, static_cast<size_t>(value->index));
      value = places.empty() ? nullptr : op.operand(static_cast<size_t>(places.front()));
    }
  }

  int merged(int index) const {
    while (true) {
      const auto known = merged_.find(index);
      if (known == merged_.end()) return index;
      index = known->second;
    }
  }

  void reuse() {
    std::stable_sort(reuses_.begin(), reuses_.end(),
                     [](const Reuse& a, const Reuse& b) { return a.position < b.position; });
    for (const Reuse& one : reuses_) {
      if (one.operand == nowhere || merged_.contains(one.result)) continue;
      const int operand_index = merged(one.operand);
      Holding &result = at(one.result), &operand = at(operand_index);
      const bool fits = !operand.is_always && operand.span.end == one.position &&
                        operand.bytes == result.bytes && operand.ipu == result.ipu;
      if (!fits || operand_index == one.result) continue;
      if (result.is_always) {
        operand.bytes = 0;
        continue;
      }
      operand.span.end = std::max(operand.span.end, result.span.end);
      result.bytes = 0;
      merged_[one.result] = operand_index;
    }
  }

  const ir::Module& module_;
  plan::Timeline line_;
  Holdings found_;
  std::unordered_map<const ir::Value*, std::vector<const ir::Op*>> users_;
  std::unordered_map<const ir::Value*, int> homes_;  // by value: the holding it lives in
  std::map<std::string, int> states_;                // by path
  std::map<std::tuple<std::string, std::string, int64_t>, int> constants_;
  std::vector<Reuse> reuses_;
  std::unordered_map<int, int> merged_;
  int round_begin_ = 0;  // of the graph with tasks
};

}  // namespace

const char* name_of(Category category) {
  switch (category) {
    case Category::parameters: return "parameters";
    case Category::optimizer: return "optimizer";
    case Category::accumulators: return "accumulators";
    case Category::constants: return "constants";
    case Category::activations: return "activations";
    case Category::stashes: return "stashes";
    case Category::streaming: return "streaming";
  }
  return "";
}

Holdings find_holdings(ir::Module& module) {
  schedule::schedule(module);
  return Finder(module).run();
}

}  // namespace poptorch::estimate
