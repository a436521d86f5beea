// Removes ops whose results are not used. Ops with effects stay. A stream or state that only such
// ops read is gone from the program.
//
//   %x = stream_in {stream="x"} : f32[4]
//   %0 = relu %x : f32[4]              %x = stream_in {stream="x"} : f32[4]
//   output %x                      =>  output %x
#include "rewrite/edit.h"
#include "rewrite/pass.h"

namespace poptorch::rewrite {

namespace {

bool dce(ir::Graph& graph) {
  std::unordered_set<const ir::Value*> used(graph.outputs.begin(), graph.outputs.end());
  std::unordered_set<const ir::Op*> dead;
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const ir::Op& op = *graph.ops[i];
    bool live = has_effects(op);
    for (const auto& result : op.results) live = live || used.contains(result.get());
    if (live) {
      used.insert(op.operands.begin(), op.operands.end());
    } else {
      dead.insert(&op);
    }
  }
  erase_ops(graph, dead);
  return !dead.empty();
}

}  // namespace

bool dce(ir::Module& module) {
  return in_each_graph(module, [](ir::Graph& graph) { return dce(graph); });
}

}  // namespace poptorch::rewrite
