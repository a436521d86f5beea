#include "tasks/wiring.h"

#include <algorithm>

#include "ir/copy.h"
#include "ir/part.h"
#include "ops/op_def.h"
#include "place/place.h"
#include "support/error.h"

namespace poptorch::tasks {

namespace {

int64_t position_of(const ir::Op& op) { return op.attrs.get_int(ir::attr::position); }

std::unique_ptr<ir::Op> twin_of(const ir::Op& op) {
  auto twin = std::make_unique<ir::Op>(ir::copy_apart(op));
  for (const auto& result : twin->results) result->op = twin.get();
  return twin;
}

}  // namespace

void Wiring::run() {
  take_ops();
  for (size_t task = 0; task < bodies_.size(); ++task) connect(task);
  for (const ir::Op* known : order_) {
    ir::Op& op = *left_.at(known);
    if (used_copies_.contains(&op)) continue;
    for (ir::Value*& operand : op.operands) {
      if (operand != nullptr) operand = in_graph(op, operand);
    }
  }
  for (ir::Value*& output : graph_.outputs) {
    const int64_t task = groups_.find(*output->op);
    if (task >= 0) output = given_by(static_cast<size_t>(task), output);
    if (groups_.everywhere.contains(output->op)) output = made_in_graph(output);
  }
  finish();
}

void Wiring::take_ops() {
  for (const Task& task : groups_.tasks) {
    Body& body = bodies_.emplace_back();
    body.op = std::make_unique<ir::Op>();
    body.op->name = ir::op::task;
    ir::Attrs& attrs = body.op->attrs;
    attrs = attrs_at(bodies_.size() - 1, nullptr);
    attrs.set(ir::attr::body, ir::GraphRef{concat(graph_.name, ".", task.name)});
    attrs.set(ir::attr::part, task.part);
  }
  int64_t position = 0;
  for (auto& op : graph_.ops) {
    op->attrs.set(ir::attr::position, position++);
    has_parts_ = has_parts_ || op->attrs.has(ir::attr::part);
    const int64_t found = groups_.find(*op);
    if (op->name == ir::op::ipu_copy) {
      copies_[{op->operand(0), op->attrs.get_int(ir::attr::ipu)}] = op.get();
      copied_[op.get()] = op->operand(0);
    }
    if (const auto also = groups_.also_in.find(op.get()); also != groups_.also_in.end()) {
      Body& body = bodies_[also->second];
      body.ops.push_back(twin_of(*op));
      body.read_as[op->result()] = body.ops.back()->result();
    }
    if (found >= 0) {
      Body& body = bodies_[static_cast<size_t>(found)];
      for (const auto& result : op->results) {
        body.read_as[result.get()] = body.held[result.get()] = result.get();
        holders_[result.get()] = {static_cast<size_t>(found)};
      }
      body.ops.push_back(std::move(op));
    } else if (groups_.everywhere.contains(op.get())) {
      sources_.push_back(std::move(op));
    } else {
      order_.push_back(op.get());
      left_[order_.back()] = std::move(op);
    }
  }
  graph_.ops.clear();
}

void Wiring::connect(size_t task) {
  const size_t count = bodies_[task].ops.size();  // more come
  for (size_t i = 0; i < count; ++i) {
    ir::Op& op = *bodies_[task].ops[i];
    for (ir::Value*& operand : op.operands) {
      if (operand != nullptr) operand = operand_of(task, op, operand);
    }
  }
}

ir::Value* Wiring::operand_of(size_t task, const ir::Op& reader, ir::Value* value) {
  const auto known = bodies_[task].read_as.find(value);
  if (known != bodies_[task].read_as.end()) return known->second;
  const ir::Op& maker = *value->op;
  const int64_t home = groups_.find(maker);
  ir::Value* here = nullptr;
  if (groups_.everywhere.contains(&maker)) {
    return made_here(task, value);
  } else if (maker.name == ir::op::ipu_copy) {
    here = arrive(task, &reader, copied_.at(&maker));
  } else if (home >= 0 && ipu_of(static_cast<size_t>(home)) != ipu_of(task)) {
    // A loop may carry a value that its body does not read; place leaves it where it is.
    ir::Attrs attrs = attrs_at(task, &reader);
    attrs.set(ir::attr::from, ipu_of(static_cast<size_t>(home)));
    ir::Value* copy = add_move(ir::op::ipu_copy, given_by(static_cast<size_t>(home), value),
                               std::move(attrs), value->name + ".carried");
    here = take(task, &reader, copy, copy->name);
  } else if (home >= 0 || maker.name == ir::op::remote_load) {
    here = arrive(task, &reader, value);
  } else {
    here = take(task, &reader, value, value->name);
  }
  return bodies_[task].read_as[value] = here;
}

ir::Value* Wiring::made_here(size_t task, ir::Value* value) {
  std::unique_ptr<ir::Op> twin = twin_of(*value->op);
  for (ir::Value*& operand : twin->operands) operand = operand_of(task, *value->op, operand);
  Body& body = bodies_[task];
  for (size_t i = 0; i < twin->results.size(); ++i) {
    body.read_as[value->op->result(i)] = twin->result(i);
  }
  body.ops.push_back(std::move(twin));
  return body.read_as.at(value);
}

ir::Value* Wiring::take(size_t task, const ir::Op* reader, ir::Value* operand,
                        const std::string& name) {
  Body& body = bodies_[task];
  auto op = std::make_unique<ir::Op>();
  op->name = ir::op::input;
  op->attrs = attrs_at(task, reader);
  op->attrs.set(ir::attr::index, static_cast<int64_t>(body.op->operands.size()));
  body.op->operands.push_back(operand);
  op->results.push_back(std::make_unique<ir::Value>(ir::Value{name, operand->type, op.get(), 0}));
  body.inputs.push_back(std::move(op));
  return body.inputs.back()->result();
}

ir::Value* Wiring::arrive(size_t task, const ir::Op* reader, ir::Value* value) {
  const auto known = bodies_[task].held.find(value);
  if (known != bodies_[task].held.end()) return known->second;
  std::vector<size_t>& holders = holders_[value];
  size_t from = bodies_.size(), last = bodies_.size();
  for (const size_t holder : holders) {
    if (holder > task) continue;
    last = holder;
    if (ipu_of(holder) == ipu_of(task)) from = holder;
  }
  ir::Value* edge = nullptr;
  if (last == bodies_.size()) {
    edge = edge_of_graph(task, value);
  } else if (from == bodies_.size() && hops_ && before(task, last) != last) {
    from = before(task, last);
    arrive(from, nullptr, value);
  } else if (from == bodies_.size()) {
    from = last;
  }
  if (edge == nullptr) edge = edge_from(from, task, reader, value);
  const auto copy = copies_.find({value, ipu_of(task)});
  const bool is_copied = copy != copies_.end();
  ir::Value* here =
      take(task, reader, edge, is_copied ? copy->second->result()->name : value->name);
  std::vector<size_t>& all = holders_[value];
  all.insert(std::upper_bound(all.begin(), all.end(), task), task);
  return bodies_[task].held[value] = here;
}

// The task before `task` on the way of a value from the task `from`.
size_t Wiring::before(size_t task, size_t from) const {
  const Task& target = groups_.tasks[task];
  for (size_t other = from + 1; target.is_backward() && other < task; ++other) {
    const Task& forward = groups_.tasks[other];
    if (!forward.is_backward() && forward.stage == target.stage) return other;
  }
  return task - 1;
}

// Of a value that no task makes.
ir::Value* Wiring::edge_of_graph(size_t task, ir::Value* value) {
  const auto copy = copies_.find({value, ipu_of(task)});
  return copy == copies_.end() ? value : copy->second->result();
}

ir::Value* Wiring::edge_from(size_t from, size_t task, const ir::Op* reader, ir::Value* value) {
  ir::Value* given = given_by(from, value);
  ir::Attrs attrs = attrs_at(task, reader);
  if (ipu_of(from) == ipu_of(task)) {
    return add_move(ir::op::stash, given, std::move(attrs), value->name + ".kept");
  }
  const auto copy = copies_.find({value, ipu_of(task)});
  if (copy != copies_.end() && used_copies_.insert(copy->second).second) {
    copy->second->operands[0] = given;
    copy->second->attrs.set(ir::attr::from, ipu_of(from));
    return copy->second->result();
  }
  attrs.set(ir::attr::from, ipu_of(from));
  return add_move(ir::op::ipu_copy, given, std::move(attrs),
                  concat(value->name, ".ipu", ipu_of(task), ".hop"));
}

ir::Value* Wiring::given_by(size_t task, ir::Value* value) {
  Body& body = bodies_[task];
  ir::Value*& known = body.given[value];
  if (known != nullptr) return known;
  const bool is_made = groups_.find(*value->op) == static_cast<int64_t>(task) &&
                       !groups_.everywhere.contains(value->op);
  const std::string name = is_made ? value->name : free_name(value->name + ".passed", value->type);
  auto& results = body.op->results;
  results.push_back(std::make_unique<ir::Value>(
      ir::Value{name, value->type, body.op.get(), static_cast<int>(results.size())}));
  body.outputs.push_back(body.held.at(value));
  return known = results.back().get();
}

ir::Value* Wiring::in_graph(const ir::Op& reader, ir::Value* value) {
  const int64_t home = groups_.find(*value->op);
  const bool is_everywhere = groups_.everywhere.contains(value->op);
  if (is_everywhere && (home < 0 || reader.name != ir::op::ipu_copy)) return made_in_graph(value);
  return home < 0 ? value : given_by(static_cast<size_t>(home), value);
}

ir::Value* Wiring::made_in_graph(ir::Value* value) {
  const auto known = made_in_graph_.find(value);
  if (known != made_in_graph_.end()) return known->second;
  std::unique_ptr<ir::Op> twin = twin_of(*value->op);
  for (ir::Value*& operand : twin->operands) operand = made_in_graph(operand);
  for (size_t i = 0; i < twin->results.size(); ++i) {
    made_in_graph_[value->op->result(i)] = twin->result(i);
  }
  left_[twin.get()] = std::move(twin);
  return made_in_graph_.at(value);
}

ir::Value* Wiring::add_move(ir::OpName name, ir::Value* from, ir::Attrs attrs,
                            const std::string& wanted) {
  attrs.set(ir::attr::bytes, place::moved_bytes(from->type));
  std::unique_ptr<ir::Op> op =
      graph_.make(name, {from}, std::move(attrs), {from->type}, {}, {wanted});
  ir::Value* moved = op->result();
  left_[moved->op] = std::move(op);
  return moved;
}

ir::Attrs Wiring::attrs_at(size_t task, const ir::Op* reader) const {
  const Task& at = groups_.tasks[task];
  ir::Attrs attrs;
  attrs.set(ir::attr::ipu, at.ipu);
  attrs.set(ir::attr::stage, at.stage);
  if (at.phase >= 0) attrs.set(ir::attr::phase, at.phase);
  const bool reads_backward = reader != nullptr && ir::part_of(*reader) == ir::Part::backward;
  const bool is_backward = at.is_backward() || reads_backward;
  if (has_parts_) attrs.set(ir::attr::part, is_backward ? "backward" : "forward");
  return attrs;
}

std::string Wiring::free_name(const std::string& wanted, const ir::Type& type) {
  return graph_.make(ir::op::stash, {}, {}, {type}, {}, {wanted})->result()->name;
}

void Wiring::emit(const ir::Op* op) {
  const auto found = left_.find(op);
  if (found == left_.end()) return;
  std::unique_ptr<ir::Op> owned = std::move(found->second);
  left_.erase(found);
  for (const ir::Value* operand : owned->operands) {
    if (operand != nullptr) emit(operand->op);
  }
  graph_.ops.push_back(std::move(owned));
}

void Wiring::finish() {
  for (const ir::Op* op : order_) {
    if (left_.contains(op) && left_.at(op)->name == ir::op::input) emit(op);
  }
  for (Body& body : bodies_) {
    for (const ir::Value* operand : body.op->operands) emit(operand->op);
    ir::Graph* graph = module_.add_graph(body.op->attrs.get_graph(ir::attr::body));
    std::stable_sort(body.ops.begin(), body.ops.end(), [](const auto& a, const auto& b) {
      return position_of(*a) < position_of(*b);
    });
    for (auto& op : body.inputs) graph->adopt(std::move(op));
    for (auto& op : body.ops) graph->adopt(std::move(op));
    graph->outputs = std::move(body.outputs);
    graph_.ops.push_back(std::move(body.op));
  }
  for (const ir::Op* op : order_) emit(op);
  for (const ir::Value* output : graph_.outputs) emit(output->op);
  INTERNAL_CHECK(left_.empty(), "[place] ", left_.size(), " moves between tasks are not read");
}

}  // namespace poptorch::tasks
