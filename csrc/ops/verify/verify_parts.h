// What the rules of verify have in common, and those that stand in files of their own.
#pragma once

#include "ir/verify.h"
#include "support/error.h"

// The words are only put together when the rule is broken: verify runs after every pass.
#define RULE(holds, ...) \
  do { \
    if (!(holds)) fail(__VA_ARGS__); \
  } while (false)

namespace poptorch::ir {

// The graph and the op that are looked at.
class Where {
 protected:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... rule) const {
    std::string where = concat("graph @", graph_->name);
    if (op_ != nullptr) where += concat(", op `", op_->text(), "`");
    throw InternalError(concat("[verify] ", where, ": ", rule...));
  }

  void enter(const Graph& graph) {
    graph_ = &graph;
    op_ = nullptr;
  }

  const Graph* graph_ = nullptr;
  const Op* op_ = nullptr;
};

// Tasks take and give what their bodies do; a body has one task, and no tasks.
void verify_tasks(const Module& module);
// Ops of a task are on its IPU; a state that a task assigns is read by no other task, unless tasks
// run in turn.
void verify_task_places(const Module& module);
// Each op that runs on an IPU has `part`, or none has.
void verify_parts(const Module& module);
// Each op that runs on an IPU has `ipu` and `stage`, and all have `phase` or none.
void verify_places(const Module& module);
// What is read lies on the IPU that reads it; only moves reach elsewhere.
void verify_moves(const Module& module);
// Every op has `order`, rising.
void verify_order(const Module& module);

}  // namespace poptorch::ir
