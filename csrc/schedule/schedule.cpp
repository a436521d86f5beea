#include "schedule/schedule.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "rewrite/edit.h"
#include "schedule/states.h"
#include "schedule/task_order.h"
#include "support/error.h"
#include "support/settings/switches.h"

namespace poptorch::schedule {

namespace {

constexpr int64_t small_bytes = 4096;  // an op on sources that is cheap enough to run late

enum class Kind { plain, lazy, eager, last };

class Scheduler {
 public:
  Scheduler(ir::Module& module, ir::Graph& graph, const StateUses& uses)
      : module_(module), graph_(graph), uses_(uses) {}

  // `tasks`: what the graph was cut into, where the ops of a task are to stand together.
  void run(const tasks::Report* tasks) {
    separate_states();
    const size_t count = graph_.ops.size();
    for (size_t i = 0; i < count; ++i) index_.emplace(graph_.ops[i].get(), static_cast<int>(i));
    nodes_.resize(count);
    for (size_t i = 0; i < count; ++i) nodes_[i].kind = kind_of(*graph_.ops[i]);
    hurry_to_eager();
    if (is_on("alap_gradients")) delay_large();
    add_data_edges();
    add_state_edges();
    add_inplace_edges();
    count_waits();
    emit_all();
    if (tasks != nullptr) group_by_task(*tasks);
    number(graph_);
  }

 private:
  struct Node {
    Kind kind = Kind::plain;
    std::vector<int> before;  // must run earlier
    std::vector<int> after;   // wait for this one; sources of waits_ are never lazy
    int waits = 0;
    bool is_emitted = false;
  };

  // `assign` copies at its place in the order. So what must still be read then cannot be the memory
  // of an assigned state: another assign's operand, or an output of the graph. These read a copy.
  void separate_states() {
    std::vector<std::unique_ptr<ir::Op>> ops;
    for (auto& op : graph_.ops) {
      if (op->name == ir::op::assign && reads_assigned(op->operand(0), op.get())) {
        ops.push_back(copy_of(op->operands[0], *op));
        op->operands[0] = ops.back()->result();
      }
      ops.push_back(std::move(op));
    }
    for (ir::Value*& output : graph_.outputs) {
      if (!reads_assigned(output, nullptr)) continue;
      ops.push_back(copy_of(output, *output->op));
      output = ops.back()->result();
    }
    graph_.ops = std::move(ops);
  }

  // Whether the value is the memory of a state that an assign other than `own` binds again.
  bool reads_assigned(ir::Value* value, const ir::Op* own) const {
    const ir::Op& source = *rewrite::memory_of(value)->op;
    if (source.name != ir::op::state) return false;
    const std::string& path = source.attrs.get_string(ir::attr::path);
    if (own != nullptr && own->attrs.get_string(ir::attr::path) == path) return false;
    return uses_.at(&graph_).assigned.contains(path);
  }

  std::unique_ptr<ir::Op> copy_of(ir::Value* value, const ir::Op& like) {
    const ir::Type type{value->type.dtype, value->type.sizes, {}};
    return rewrite::make_like(graph_, like, ir::op::contiguous, {value}, {}, {type});
  }

  Kind kind_of(const ir::Op& op) const {
    if (op.name == ir::op::assign) return Kind::last;
    if (op.name == ir::op::input || ir::has_bodies(op)) return Kind::plain;
    if (op.name == ir::op::constant || op.name == ir::op::state || op.name == ir::op::stream_in ||
        op.name == ir::op::full || op.name == ir::op::arange || ops::is_alias(op)) {
      return Kind::lazy;
    }
    if (op.name == ir::op::stream_out || op.name == ir::op::accumulate ||
        op.name == ir::op::all_reduce) {
      return Kind::eager;
    }
    const Kind kind = ir::part_of(op) == ir::Part::update ? Kind::eager : Kind::plain;
    const ops::OpDef* row = ops::find_op(op.name);
    if (row == nullptr || row->effects || row->random) return kind;
    for (const auto& result : op.results) {
      if (result->type.bytes() > small_bytes) return kind;
    }
    // Not on streams: of a small program, all is small and on streams.
    const bool on_sources = std::all_of(op.operands.begin(), op.operands.end(), [&](auto* operand) {
      if (operand == nullptr) return true;
      return nodes_[index_.at(rewrite::unmoved(operand)->op)].kind == Kind::lazy &&
             rewrite::memory_of(operand)->op->name != ir::op::stream_in;
    });
    return on_sources ? Kind::lazy : kind;
  }

  // What stands between a gradient and what consumes it, element by element, is as eager.
  void hurry_to_eager() {
    std::vector<bool> has_other_user(nodes_.size(), false), has_user(nodes_.size(), false);
    for (const ir::Value* output : graph_.outputs) has_other_user[index_.at(output->op)] = true;
    for (size_t i = nodes_.size(); i-- > 0;) {
      const ir::Op& op = *graph_.ops[i];
      const ops::OpDef* row = ops::find_op(op.name);
      const bool is_plain = nodes_[i].kind == Kind::plain && row != nullptr && !row->random;
      if (is_plain && (row->elementwise || op.name == ir::op::contiguous) && has_user[i] &&
          !has_other_user[i]) {
        nodes_[i].kind = Kind::eager;
      }
      // Through a view, its users are those of the memory.
      const bool is_eager = nodes_[i].kind == Kind::eager ||
                            (op.name == ir::op::view && has_user[i] && !has_other_user[i]);
      for (const ir::Value* operand : op.operands) {
        if (operand == nullptr) continue;
        (is_eager ? has_user : has_other_user)[index_.at(operand->op)] = true;
      }
    }
  }

  // A value much larger than its operands waits for its first user: the gradient of an output
  // layer, whose table is an embedding too, waits until the backward pass gets there.
  void delay_large() {
    const int end = static_cast<int>(graph_.ops.size());
    std::vector<int> first_use(nodes_.size(), end);      // of results
    std::unordered_map<const ir::Value*, int> last_use;  // of memory
    for (ir::Value* output : graph_.outputs) last_use[rewrite::memory_of(output)] = end;
    for (int i = end; i-- > 0;) {
      const ir::Op& op = *graph_.ops[static_cast<size_t>(i)];
      if (is_delayed(op, i, first_use[i], last_use)) nodes_[i].kind = Kind::lazy;
      const Kind kind = nodes_[i].kind;
      const int runs = kind == Kind::lazy ? first_use[i] : i;
      const bool hurries = kind == Kind::eager || kind == Kind::last;
      for (ir::Value* operand : op.operands) {
        if (operand == nullptr) continue;
        int& first = first_use[index_.at(operand->op)];
        first = std::min(first, hurries ? 0 : runs);
        if (ops::is_alias(op)) continue;
        int& last = last_use.try_emplace(rewrite::memory_of(operand), runs).first->second;
        last = std::max(last, runs);
      }
    }
  }

  bool is_delayed(const ir::Op& op, int position, int first_use,
                  const std::unordered_map<const ir::Value*, int>& last_use) const {
    const ops::OpDef* row = ops::find_op(op.name);
    const bool fits = nodes_[position].kind == Kind::plain && op.results.size() == 1 &&
                      !ir::has_bodies(op) && rewrite::is_backward(op) && row != nullptr &&
                      !row->effects && !row->random && op.name != ir::op::contiguous;
    if (!fits || first_use <= position + 1 || first_use == static_cast<int>(nodes_.size())) {
      return false;
    }
    int64_t longer = small_bytes;  // what would wait instead
    std::vector<const ir::Value*> known;
    for (ir::Value* operand : op.operands) {
      if (operand == nullptr) continue;
      const ir::Value* base = rewrite::memory_of(operand);
      const auto last = last_use.find(base);
      const bool dies = last == last_use.end() || last->second < first_use;
      if (!dies || base->op->name == ir::op::state || base->op->name == ir::op::constant) continue;
      if (std::find(known.begin(), known.end(), base) != known.end()) continue;
      known.push_back(base);
      longer += base->type.bytes();
    }
    // What another IPU, stage or phase uses is made in the op's own turn.
    return op.result()->type.bytes() > 2 * longer &&
           rewrite::is_at_one_place(op, *graph_.ops[static_cast<size_t>(first_use)]);
  }

  void add_edge(int before, int after) {
    if (before != after) nodes_[after].before.push_back(before);
  }

  void add_data_edges() {
    int last_effect = -1;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op& op = *graph_.ops[i];
      const int node = static_cast<int>(i);
      for (const ir::Value* operand : op.operands) {
        if (operand != nullptr) add_edge(index_.at(operand->op), node);
      }
      const ops::OpDef* row = ops::find_op(op.name);
      const bool is_ordered = row != nullptr && row->effects && op.name != ir::op::assign &&
                              op.name != ir::op::stream_out;
      if (!is_ordered) continue;
      if (last_effect >= 0) add_edge(last_effect, node);
      last_effect = node;
    }
  }

  // Readers of each state: users of its value or of views of it, and ops whose bodies touch it.
  std::map<std::string, std::vector<int>> readers() const {
    std::map<std::string, std::vector<int>> readers;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op& op = *graph_.ops[i];
      for (ir::Value* operand : op.operands) {
        const ir::Op* source = operand == nullptr ? nullptr : rewrite::memory_of(operand)->op;
        if (source != nullptr && source->name == ir::op::state) {
          readers[source->attrs.get_string(ir::attr::path)].push_back(static_cast<int>(i));
        }
      }
      for (const ir::Graph* body : ir::bodies_of(module_, op)) {
        const StateUse& inside = uses_.at(body);
        for (const auto* paths : {&inside.read, &inside.assigned}) {
          for (const std::string& path : *paths) readers[path].push_back(static_cast<int>(i));
        }
      }
    }
    return readers;
  }

  void add_state_edges() {
    const auto readers = this->readers();
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op& op = *graph_.ops[i];
      if (op.name != ir::op::assign) continue;
      const auto found = readers.find(op.attrs.get_string(ir::attr::path));
      if (found == readers.end()) continue;
      for (const int reader : found->second) add_edge(reader, static_cast<int>(i));
      // The ops that make the new value in place of the old one. Each takes what the one before
      // makes, so that a reader needs no edge but to the first one after it. Later readers in
      // program order may depend on the new value: they get no edge, and plan finds that in place
      // is impossible.
      std::vector<int> makers;
      for (const ir::Value* value = op.operand(0); value != nullptr;) {
        value = rewrite::unmoved(value);
        makers.push_back(index_.at(value->op));
        value = inplace_source(*value);
      }
      std::ranges::reverse(makers);
      for (const int reader : found->second) {
        const auto maker = std::ranges::upper_bound(makers, reader);
        if (maker != makers.end()) add_edge(reader, *maker);
      }
    }
  }

  // An op that the pass `inplace` marked overwrites its operand: the other readers go first.
  void add_inplace_edges() {
    std::unordered_map<const ir::Value*, std::vector<int>> readers;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ir::Op& op = *graph_.ops[i];
      for (ir::Value* operand : op.operands) {
        if (operand != nullptr) readers[rewrite::memory_of(operand)].push_back(static_cast<int>(i));
      }
      if (!op.attrs.has(ir::attr::inplace)) continue;
      for (const int64_t operand : op.attrs.get_ints(ir::attr::inplace)) {
        if (operand < 0) continue;
        const ir::Value* memory = rewrite::memory_of(op.operand(static_cast<size_t>(operand)));
        for (const int reader : readers[memory]) add_edge(reader, static_cast<int>(i));
      }
    }
  }

  // The operand whose memory the op's row lets this value take.
  static const ir::Value* inplace_source(const ir::Value& value) {
    const std::vector<int> places =
        ops::inplace_candidates(*value.op, static_cast<size_t>(value.index));
    return places.empty() ? nullptr : value.op->operand(static_cast<size_t>(places.front()));
  }

  // An op waits for the others before it that are not lazy; lazy ones run when they are needed.
  void count_waits() {
    std::vector<int> seen(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::vector<int> waits;
      collect_waits(static_cast<int>(i), static_cast<int>(i), seen, waits);
      std::sort(waits.begin(), waits.end());
      waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
      nodes_[i].waits = static_cast<int>(waits.size());
      for (const int wait : waits) nodes_[wait].after.push_back(static_cast<int>(i));
    }
  }

  // `seen[x] == root` marks what was visited for this root: lazy ops form graphs with many paths.
  void collect_waits(int node, int root, std::vector<int>& seen, std::vector<int>& waits) const {
    for (const int before : nodes_[node].before) {
      if (seen[before] == root) continue;
      seen[before] = root;
      if (nodes_[before].kind == Kind::lazy) {
        collect_waits(before, root, seen, waits);
      } else {
        waits.push_back(before);
      }
    }
  }

  void emit_all() {
    std::vector<std::unique_ptr<ir::Op>> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (const Kind kind : {Kind::plain, Kind::last, Kind::lazy}) {
      for (size_t i = 0; i < ops.size(); ++i) {
        const bool is_due = nodes_[i].kind == kind ||
                            (nodes_[i].kind == Kind::eager && kind == Kind::plain);
        if (is_due) emit(static_cast<int>(i), ops);
      }
    }
  }

  void group_by_task(const tasks::Report& tasks) {
    std::vector<const ir::Op*> ops(nodes_.size());
    for (const auto& [op, node] : index_) ops[node] = op;
    TaskOrder order(module_, tasks);
    for (const auto& op : graph_.ops) {
      std::vector<const ir::Op*> before;
      for (const int node : nodes_[index_.at(op.get())].before) before.push_back(ops[node]);
      order.add(*op, before);
    }
    order.sort(graph_);
  }

  void emit(int node, std::vector<std::unique_ptr<ir::Op>>& ops) {
    if (nodes_[node].is_emitted) return;
    nodes_[node].is_emitted = true;
    for (const int before : nodes_[node].before) emit(before, ops);
    graph_.ops.push_back(std::move(ops[node]));
    for (const int after : nodes_[node].after) {
      const bool is_ready = --nodes_[after].waits == 0;
      const Kind kind = nodes_[after].kind;
      if (is_ready && (kind == Kind::eager || kind == Kind::last)) emit(after, ops);
    }
  }

  ir::Module& module_;
  ir::Graph& graph_;
  const StateUses& uses_;
  std::vector<Node> nodes_;
  std::unordered_map<const ir::Op*, int> index_;
};

}  // namespace

void schedule(ir::Module& module, const tasks::Report* tasks) {
  const StateUses uses = state_uses(module);
  for (const auto& graph : module.graphs) {
    const bool is_cut = tasks != nullptr && tasks->graph == graph->name;
    Scheduler(module, *graph, uses).run(is_cut ? tasks : nullptr);
  }
}

void number(ir::Graph& graph) {
  int64_t order = 0;
  for (const auto& op : graph.ops) op->attrs.set(ir::attr::order, order++);
}

}  // namespace poptorch::schedule
