// The graph before it was cut: ops in the order of their positions, without the edges.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "ir/bodies.h"
#include "ops/op_def.h"
#include "place/place.h"
#include "support/error.h"
#include "tasks/cut.h"
#include "tasks/edges.h"

namespace poptorch::tasks {

namespace {

class Inliner {
 public:
  Inliner(ir::Module& module, ir::Graph& graph) : module_(module), graph_(graph) {}

  void run() {
    std::vector<std::unique_ptr<ir::Op>> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (auto& op : ops) {
      if (op->name == ir::op::task) {
        add_task(*op);
      } else if (op->attrs.has(ir::attr::position)) {
        const int64_t ipu = op->attrs.get_int(ir::attr::ipu, 0);
        add(std::move(op), ipu);
      } else {
        INTERNAL_CHECK(ops::is_move(*op), "`", op->text(), "` has no position");
        before_[op->result()] = find(op->operand(0));
        edges_.push_back(std::move(op));
      }
    }
    for (ir::Value*& output : graph_.outputs) output = find(output);
    for (auto& [position, op] : placed_) {
      op->attrs.erase(ir::attr::position);
      op->attrs.erase(ir::attr::depth);
      graph_.adopt(std::move(op));
    }
    for (auto& op : ops) edges_.push_back(std::move(op));  // tasks, until nothing names them
    std::erase_if(module_.graphs,
                  [&](const auto& graph) { return bodies_.contains(graph->name); });
  }

 private:
  ir::Value* find(ir::Value* value) const {
    const auto found = before_.find(value);
    return found == before_.end() ? value : found->second;
  }

  void add_task(const ir::Op& task) {
    ir::Graph& body = ir::body_of(module_, task);
    bodies_.insert(body.name);
    const int64_t ipu = task.attrs.get_int(ir::attr::ipu);
    for (auto& op : body.ops) {
      if (op->name == ir::op::input) {
        const auto index = static_cast<size_t>(op->attrs.get_int(ir::attr::index));
        before_[op->result()] = find(task.operands[index]);
      } else {
        INTERNAL_CHECK(op->attrs.has(ir::attr::position), "`", op->text(), "` has no position");
        add(std::move(op), ipu);
      }
    }
    for (size_t i = 0; i < task.results.size(); ++i) {
      before_[task.result(i)] = find(body.outputs[i]);
    }
  }

  // Of ops with one position the first one stays.
  void add(std::unique_ptr<ir::Op> op, int64_t ipu) {
    for (ir::Value*& operand : op->operands) {
      if (operand != nullptr) operand = find(operand);
    }
    if (op->name == ir::op::ipu_copy) {
      ir::Value*& from = op->operands[0];  // not from where it passed by
      while (from->op->name == ir::op::ipu_copy) from = from->op->operands[0];
      op->attrs.set(ir::attr::from, ipu_of_.at(from->op));
    }
    ipu_of_[op.get()] = ipu;
    const auto [at, is_new] = placed_.try_emplace(op->attrs.get_int(ir::attr::position));
    if (is_new) {
      at->second = std::move(op);
      return;
    }
    for (size_t i = 0; i < op->results.size(); ++i) {
      before_[op->result(i)] = at->second->result(i);
    }
    edges_.push_back(std::move(op));
  }

  ir::Module& module_;
  ir::Graph& graph_;
  std::map<int64_t, std::unique_ptr<ir::Op>> placed_;  // by position
  std::unordered_map<const ir::Value*, ir::Value*> before_;  // the value before the cut
  std::unordered_map<const ir::Op*, int64_t> ipu_of_;
  std::vector<std::unique_ptr<ir::Op>> edges_;  // what is gone
  std::set<std::string> bodies_;
};

}  // namespace

void inline_tasks(ir::Module& module) {
  const auto found = std::find_if(module.graphs.begin(), module.graphs.end(),
                                  [](const auto& graph) { return has_tasks(*graph); });
  if (found == module.graphs.end()) return;
  ir::Graph& graph = **found;
  for (ir::Op* op : module.all_ops()) {
    if (op->name == ir::op::loop) op->attrs.erase(ir::attr::pipeline);
  }
  if (ir::Op* strategy = place::find_strategy(module)) strategy->attrs.erase(ir::attr::cyclic);
  Inliner(module, graph).run();
}

}  // namespace poptorch::tasks
