// Ops that hold the program together: constants, state, streams, loops, views, and the opaque op.
#include "ops/layout.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

std::vector<ir::Type> no_results(const InferInput&) { return {}; }

// What a loop carries keeps its type from iteration to iteration.
std::vector<ir::Type> infer_loop(const InferInput& in) {
  if (in.attrs().get_bool(ir::attr::conditional, false)) {
    USER_CHECK(in.count() > 0 && in.operand(0).dtype == ir::DType::boolean &&
                   in.operand(0).numel() == 1,
               "[loop] is conditional, and its first carried value is no single bool.");
  }
  std::vector<ir::Type> types;
  for (size_t i = 0; i < in.count(); ++i) {
    types.push_back({in.operand(i).dtype, in.operand(i).sizes, {}});
  }
  return types;
}

// Made by the step place. They say what an IPU does; here all memory is one, so the result lies
// where the operand lies, and nothing is done.
OpDef move_row(const char* name, const char* doc, std::vector<AttrDef> attrs = {}) {
  attrs.push_back({"bytes", 0, true});
  attrs.push_back({"depth", 0});
  return {.name = name,
          .doc = doc,
          .operands = {"x"},
          .attrs = attrs,
          .flops = none,
          .strided = Strided::all};
}

// Says something to the host or to a step, and computes nothing.
OpDef saying_row(const char* name, const char* doc, std::vector<std::string> operands,
                 std::vector<AttrDef> attrs) {
  return {.name = name,
          .doc = doc,
          .operands = std::move(operands),
          .results = {},
          .attrs = std::move(attrs),
          .infer = no_results,
          .flops = none,
          .bytes = none,
          .effects = true};
}

}  // namespace

std::vector<OpDef> structure_ops() {
  return {
      {.name = "constant",
       .doc = "A fixed tensor. Its elements are in `data` (few) or stored by `hash` (many).",
       .attrs = {{"data", {}}, {"hash", {}}},
       .flops = none,
       .bytes = none},
      {.name = "state",
       .doc = "The named state (parameter, buffer, optimizer state, ...) as of graph entry; with "
              "`off_chip` it is in streaming memory. The host has it with channels first, whatever "
              "its layout here. With `shard_of` each replica has one part of a tensor of these "
              "sizes, as `shard` makes it; the host has the whole tensor.",
       .attrs = {{"path", "", true},
                 {"role", ""},
                 {"off_chip", false},
                 {"shard_of", {}},
                 layout_attr},
       .flops = none,
       .bytes = none},
      saying_row("assign", "Binds `x` to the named state when the graph ends.", {"x"},
                 {{"path", "", true}}),
      {.name = "input",
       .doc = "The carried value number `index` of the loop whose body this graph is; with "
              "`off_chip` it is in streaming memory, from round to round.",
       .attrs = {{"index", 0, true}, {"off_chip", false}},
       .flops = none,
       .bytes = none},
      {.name = "stream_in",
       .doc = "The next tensor of a host stream; with `repeat` the same one every time. `overlap` "
              "is the loop whose work hides the copy: accumulation_loop, device_iteration_loop. "
              "`buffers` is how many values the IPU has room for.",
       .attrs = {{"stream", "", true}, {"repeat", false}, {"overlap", ""}, {"buffers", 1}},
       .flops = none,
       .bytes = none},
      saying_row("stream_out",
                 "Sends `x` to the host; `overlap` and `buffers` as of `stream_in`.", {"x"},
                 {{"stream", "", true}, {"overlap", ""}, {"buffers", 1}}),
      {.name = "loop",
       .doc = "Runs the graph `body` `count` times; with `conditional` as long as the first "
              "carried value, a bool, is true, which may be never (`count` says nothing then). The "
              "outputs of one round are the carried values of the next; the results are those of "
              "the last, or the operands. `pipeline` is the schedule of the tasks in `body`: "
              "grouped, interleaved, sequential or fill_drain.",
       .operands = {"carried*"},
       .results = {"carried*"},
       .attrs = {{"body", ir::GraphRef{}, true},
                 {"count", 1, true},
                 {"conditional", false},
                 {"pipeline", ""}},
       .infer = infer_loop,
       .flops = none,
       .bytes = none,
       .effects = true},
      {.name = "task",
       .doc = "Runs the graph `body` once: what one IPU computes of one micro-batch for one stage. "
              "The operands are the inputs of the body, the results its outputs. `stage` is the "
              "first of the stages that it computes, `part` is forward, backward or both. In round "
              "r of a pipeline it has micro-batch r - `offset`.",
       .operands = {"inputs*"},
       .results = {"outputs*"},
       .attrs = {{"body", ir::GraphRef{}, true}, {"offset", 0}},
       .flops = none,
       .bytes = none,
       .effects = true},
      {.name = "aten",
       .doc = "Any functional PyTorch operator, called through its dispatcher. `args` is the "
              "argument list with \"%k\" for operand k (docs/internals/opaque_ops.md).",
       .operands = {"operands?*"},
       .results = {"results*"},
       .attrs = {{"overload", "", true},
                 {"args", ir::AttrList{}, true},
                 {"salt", {}},
                 {"int32", ir::AttrList{}},
                 {"strides", ir::AttrList{}}}},
      {.name = "host_call",
       .doc = "Calls the function of the host that has the number `site` in this process, through "
              "the operator `overload` of PyTorch, once in each run.",
       .operands = {"operands*"},
       .results = {"results*"},
       .attrs = {{"overload", "", true}, {"site", 0, true}},
       .effects = true},
      {.name = "print_tensor",
       .aten = {"poptorch::print_tensor"},
       .doc = "`x`, which is printed on stderr each time. What the attributes mean is said at "
              "`poptorch.ipu_print_tensor`.",
       .operands = {"x"},
       .attrs = {{"title", "", true},
                 {"summarise_threshold", 1000},
                 {"edge_items", 3},
                 {"max_line_width", 80},
                 {"digits", 5},
                 {"float_format", "auto"},
                 {"separator", ","},
                 {"open_bracket", "{"},
                 {"close_bracket", "}"}},
       .infer = same_as_first,
       .flops = none,
       .inplace = {{0}},
       .effects = true},
      {.name = "view",
       .doc = "The memory of `x` seen with the strides of the result's type, from element `offset` "
              "on. Costs nothing. Made by the pass `views`.",
       .operands = {"x"},
       .attrs = {{"offset", 0}},
       .flops = none,
       .bytes = none,
       .strided = Strided::all,
       .view = true,
       .lowered = true},
      {.name = "contiguous",
       .doc = "A row-major copy of `x`.",
       .operands = {"x"},
       .infer = same_as_first,
       .flops = none,
       .strided = Strided::all},
      {.name = "nop",
       .doc = "`x`. It stays in the program: no pass removes it, merges it with other operations "
              "or fuses it.",
       .operands = {"x"},
       .infer = same_as_first,
       .flops = none,
       .bytes = none,
       .strided = Strided::all,
       .inplace = {{0}},
       .effects = true},
      saying_row("strategy",
                 "How the program uses its IPUs. `blocks` is where the blocks of the model run, "
                 "[name, ipu, stage, phase] of each, and `outside` where ops before the first one "
                 "do; the step place replaces them by `stages`, the number of stages. `phases` "
                 "counts those of the forward pass, `io_tiles` the tiles of each IPU that only "
                 "transfer, `sync` which IPUs meet before one talks to the host: full (all of "
                 "the replica), single_pipeline or replica_and_ladder (none). `schedule`: that of "
                 "a pipeline: grouped, interleaved, sequential or fill_drain. `cyclic`: the stages "
                 "depend on each other in a cycle, so they run in turn. `recomputation`: whether "
                 "backward tasks recompute the values that forward tasks do not keep; off, stages, "
                 "or auto: in pipelines.",
                 {},
                 {{"kind", "", true},
                  {"blocks", ir::AttrList{}},
                  {"outside", ir::AttrList{}},
                  {"stages", 1},
                  {"phases", 1},
                  {"io_tiles", 0},
                  {"sync", "full"},
                  {"separate_backward", false},
                  {"liveness", "always_live"},
                  {"schedule", "grouped"},
                  {"cyclic", false},
                  {"recomputation", "auto"}}),
      saying_row("tensor_location",
                 "Where tensors of a role (activation, parameter, optimizer, accumulator) of at "
                 "least `least_elements` are kept: on_chip, off_chip, or as the strategy has it. "
                 "`load_tiles` and `store_tiles` are the tiles that transfer them, compute or io. "
                 "Read and removed by the step place.",
                 {},
                 {{"role", "", true},
                  {"storage", "strategy"},
                  {"least_elements", 2},
                  {"load_tiles", "compute"},
                  {"store_tiles", "compute"}}),
      move_row("ipu_copy",
               "`x`, which is on the IPU `from`, on the IPU of this op. Between two tasks, `depth` "
               "is the most micro-batches that it holds; 0: not known yet.",
               {{"from", 0, true}}),
      move_row("remote_store", "`x` in streaming memory, by the compute tiles or the io tiles.",
               {{"tiles", "compute"}}),
      move_row("remote_load",
               "`x`, which is in streaming memory, on the IPU of this op; `tiles` as of "
               "`remote_store`.",
               {{"tiles", "compute"}}),
      {.name = "stash",
       .doc = "`x`, kept for a later task of the same IPU; `depth` as of `ipu_copy`.",
       .operands = {"x"},
       .attrs = {{"bytes", 0, true}, {"depth", 0}},
       .flops = none,
       .bytes = none,
       .strided = Strided::all},
  };
}

}  // namespace poptorch::ops
