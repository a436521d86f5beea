// The rules of ir/verify.h about tasks (csrc/tasks/cut.h).
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/verify/verify_parts.h"

namespace poptorch::ir {

namespace {

class TaskVerifier : Where {
 public:
  explicit TaskVerifier(const Module& module) : module_(module) {}

  void check() {
    std::set<std::string> bodies;
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        if (op->name != ir::op::task) continue;
        op_ = op.get();
        check_values(body_of(module_, *op));
        RULE(op->attrs.has(ir::attr::part), "needs `part`: forward, backward or both");
        RULE(bodies.insert(body_names(*op)[0]).second, "another task has the same body");
      }
    }
    if (bodies.empty()) return;
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) check_runs(*op, bodies);
    }
  }

  // Of a placed module.
  void check_places() {
    const std::map<std::string, std::string> pipelines = pipelines_by_body();
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      States states;
      for (const auto& op : graph->ops) {
        op_ = op.get();
        if (op->name != ir::op::task) continue;
        const Graph& body = body_of(module_, *op);
        for (const auto& inner : body.ops) check_place(*inner);
        note_states(body, *op, states);
      }
      const auto pipeline = pipelines.find(graph->name);
      if (pipeline != pipelines.end() && pipeline->second != "sequential") check_states(states);
    }
  }

 private:
  // By path: the tasks that read a state, and those that assign it.
  using States = std::map<std::string, std::pair<std::set<const Op*>, std::set<const Op*>>>;

  std::map<std::string, std::string> pipelines_by_body() const {
    std::map<std::string, std::string> found;
    for (const Op* op : module_.all_ops()) {
      if (op->name != ir::op::loop || !op->attrs.has(ir::attr::pipeline)) continue;
      found[body_names(*op)[0]] = op->attrs.get_string(ir::attr::pipeline);
    }
    return found;
  }

  // Streaming memory belongs to no IPU.
  void check_place(const Op& inner) const {
    if (!runs_on_ipu(inner.name) || inner.attrs.get_bool(ir::attr::off_chip, false)) return;
    const int64_t ipu = op_->attrs.get_int(ir::attr::ipu);
    RULE(inner.attrs.get_int(ir::attr::ipu) == ipu, "is on IPU ", ipu, ", its body has `",
         inner.text(), "`");
  }

  void note_states(const Graph& graph, const Op& task, States& states) const {
    for (const auto& op : graph.ops) {
      for (const Graph* body : bodies_of(module_, *op)) note_states(*body, task, states);
      if (op->name != ir::op::state && op->name != ir::op::assign) continue;
      auto& [readers, writers] = states[op->attrs.get_string(ir::attr::path)];
      (op->name == ir::op::state ? readers : writers).insert(&task);
    }
  }

  void check_states(const States& states) {
    for (const auto& [path, tasks] : states) {
      const auto& [readers, writers] = tasks;
      if (writers.empty()) continue;
      op_ = *writers.begin();
      RULE(writers.size() == 1, "assigns state \"", path, "\", as another task does");
      for (const Op* reader : readers) {
        RULE(reader == op_, "assigns state \"", path, "\", which another task reads: a pipeline "
             "has other micro-batches there");
      }
    }
  }

  void check_values(const Graph& body) const {
    std::set<size_t> read;
    for (const auto& op : body.ops) {
      if (op->name != ir::op::input) continue;
      const auto index = static_cast<size_t>(op->attrs.get_int(ir::attr::index));
      RULE(index < op_->operands.size(), "has ", op_->operands.size(),
           " operands, its body reads number ", index);
      RULE(op->result()->type == op_->operand(index)->type, "operand ", index, " is ",
           op_->operand(index)->type.text(), ", its body reads ", op->result()->type.text());
      read.insert(index);
    }
    for (size_t i = 0; i < op_->operands.size(); ++i) {
      RULE(read.contains(i), "has operand ", i, ", which its body does not read");
    }
    RULE(body.outputs.size() == op_->results.size(), "has ", op_->results.size(),
         " results, its body has ", body.outputs.size());
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      RULE(body.outputs[i]->type == op_->result(i)->type, "result ", i, " is ",
           op_->result(i)->type.text(), ", its body gives ", body.outputs[i]->type.text());
    }
  }

  // A body is run by its task alone, and has no tasks.
  void check_runs(const Op& op, const std::set<std::string>& bodies) {
    op_ = &op;
    const int64_t depth = op.attrs.get_int(ir::attr::depth, 0);
    RULE(depth >= 0, "has depth=", depth, ", a number of micro-batches");
    if (op.name == ir::op::task) {
      RULE(!bodies.contains(graph_->name), "is in the body of another task");
      return;
    }
    for (const std::string& name : body_names(op)) {
      RULE(!bodies.contains(name), "runs @", name, ", which is the body of a task");
    }
  }

  const Module& module_;
};

}  // namespace

void verify_tasks(const Module& module) { TaskVerifier(module).check(); }

void verify_task_places(const Module& module) { TaskVerifier(module).check_places(); }

}  // namespace poptorch::ir
