// The rules of ir/verify.h about tasks (csrc/tasks/cut.h).
#include <set>

#include "ir/bodies.h"
#include "ops/verify_parts.h"

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

 private:
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

}  // namespace poptorch::ir
