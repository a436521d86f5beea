#include "plan/timeline.h"

#include <algorithm>

#include "ir/bodies.h"
#include "support/error.h"
#include "support/mutant.h"

namespace poptorch::plan {

namespace {

class Walker {
 public:
  explicit Walker(const ir::Module& module) : module_(module) {}

  void walk(const ir::Graph& graph) {
    const auto [at, is_new] = line_.graphs.emplace(&graph, Span{});
    INTERNAL_CHECK(is_new, "graph @", graph.name, " is the body of two ops");
    const int entry = next_++;
    for (const auto& op : graph.ops) visit(*op, entry);
    const int exit = next_++;
    for (const ir::Value* output : graph.outputs) use(output, exit);
    line_.graphs.at(&graph) = {entry, exit};
    line_.end = std::max(line_.end, exit);
  }

  Timeline take() { return std::move(line_); }

 private:
  void visit(const ir::Op& op, int entry) {
    Span span{next_, next_};
    ++next_;
    for (const ir::Value* operand : op.operands) use(operand, span.begin);
    if (ir::has_bodies(op)) {
      for (const ir::Graph* body : ir::bodies_of(module_, op)) walk(*body);
      span.end = next_++;
    }
    line_.ops.emplace(&op, span);
    const bool is_there_at_entry = op.name == ir::op::state || op.name == ir::op::input;
    const int begin = is_there_at_entry ? entry : span.end + (MUTANT(results_begin_late) ? 1 : 0);
    for (const auto& result : op.results) line_.values.emplace(result.get(), Span{begin, begin});
  }

  void use(const ir::Value* value, int position) {
    if (value == nullptr) return;
    const auto found = line_.values.find(value);
    INTERNAL_CHECK(found != line_.values.end(), "%", value->name, " is used before it is defined");
    found->second.end = position;
  }

  const ir::Module& module_;
  Timeline line_;
  int next_ = 0;
};

}  // namespace

Timeline make_timeline(const ir::Module& module) {
  Walker walker(module);
  for (const ir::Graph* graph : module.entries()) walker.walk(*graph);
  Timeline line = walker.take();
  for (const auto& graph : module.graphs) {
    INTERNAL_CHECK(line.graphs.contains(graph.get()), "graph @", graph->name, " is never run");
  }
  return line;
}

}  // namespace poptorch::plan
