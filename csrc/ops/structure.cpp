// Ops that hold the program together: constants, state, streams, loops, views, and the opaque op.
#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

std::vector<ir::Type> no_results(const InferInput&) { return {}; }

// What a loop carries keeps its type from iteration to iteration.
std::vector<ir::Type> same_as_operands(const InferInput& in) {
  std::vector<ir::Type> types;
  for (size_t i = 0; i < in.count(); ++i) {
    types.push_back({in.operand(i).dtype, in.operand(i).sizes, {}});
  }
  return types;
}

}  // namespace

std::vector<OpDef> structure_ops() {
  return {
      {.name = "constant",
       .doc = "A fixed tensor. Its elements are in `data` (few) or stored by `hash` (many).",
       .attrs = {{"data", {}}, {"hash", {}}}},
      {.name = "state",
       .doc = "The named state (parameter, buffer, optimizer state, ...) as of graph entry.",
       .attrs = {{"path", "", true}, {"role", ""}}},
      {.name = "assign",
       .doc = "Binds `x` to the named state when the graph ends.",
       .operands = {"x"},
       .results = {},
       .attrs = {{"path", "", true}},
       .infer = no_results,
       .effects = true},
      {.name = "input",
       .doc = "The carried value number `index` of the loop whose body this graph is.",
       .attrs = {{"index", 0, true}}},
      {.name = "stream_in",
       .doc = "The next tensor of a host stream; with `repeat` the same one every time.",
       .attrs = {{"stream", "", true}, {"repeat", false}}},
      {.name = "stream_out",
       .doc = "Sends `x` to the host.",
       .operands = {"x"},
       .results = {},
       .attrs = {{"stream", "", true}},
       .infer = no_results,
       .effects = true},
      {.name = "loop",
       .doc = "Runs the graph `body` `count` times. The outputs of one round are the carried "
              "values of the next; the results are those of the last.",
       .operands = {"carried*"},
       .results = {"carried*"},
       .attrs = {{"body", ir::GraphRef{}, true}, {"count", 1, true}},
       .infer = same_as_operands,
       .effects = true},
      {.name = "aten",
       .doc = "Any functional PyTorch operator, called through its dispatcher. `args` is the "
              "argument list with \"%k\" for operand k (docs/internals/opaque_ops.md).",
       .operands = {"operands?*"},
       .results = {"results*"},
       .attrs = {{"overload", "", true}, {"args", ir::AttrList{}, true}, {"salt", {}}}},
      {.name = "view",
       .doc = "The memory of `x` seen with the strides of the result's type, from element `offset` "
              "on. Costs nothing. Made by the pass `views`.",
       .operands = {"x"},
       .attrs = {{"offset", 0}},
       .strided = Strided::all},
      {.name = "contiguous",
       .doc = "A row-major copy of `x`.",
       .operands = {"x"},
       .infer = same_as_first,
       .strided = Strided::all},
      {.name = "all_reduce",
       .doc = "The sum or the mean of `x` over all replicas, in the order of the replicas. The "
              "engine runs it: every replica gets the same bits.",
       .operands = {"x"},
       .attrs = {{"op", "sum"}},
       .infer = same_as_first,
       .inplace = {{0}}},
  };
}

}  // namespace poptorch::ops
