// What replicas do together. The engine runs these ops.
//
// A tensor is sharded when each of `shards` replicas has one part of it. The tensor is taken as a
// row of n elements; part r begins at element r * ceil(n / shards). All parts have ceil(n / shards)
// elements: what lies behind the end repeats the last element, so that an update computes nothing
// there that it does not compute elsewhere too.
#include "ops/families/shape.h"
#include "ops/work.h"
#include "support/ceil_div.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

int64_t shards_of(const InferInput& in) {
  const int64_t shards = in.attrs().get_int(ir::attr::shards);
  USER_CHECK(shards >= 1, "[", in.op.name.str(), "] shards is ", shards, ". Give 1 or more.");
  return shards;
}

Types infer_all_reduce(const InferInput& in) {
  Types types;
  for (size_t i = 0; i < in.count(); ++i) {
    USER_CHECK(in.operand(i).dtype == in.operand(0).dtype, "[all_reduce] operand ", i, " is ",
               in.operand(i).text(), ", operand 0 is ", in.operand(0).text(),
               ". Reduce tensors of different dtypes by different ops.");
    types.push_back({in.operand(i).dtype, in.operand(i).sizes, {}});
  }
  return types;
}

std::vector<int> own_operand(const ir::Op&, size_t result) { return {static_cast<int>(result)}; }

double elements_of_results(const WorkInput& in) {
  double count = 0;
  for (const auto& result : in.op.results) count += numel(result->type);
  return if_float(in, count);
}

Types infer_part(const InferInput& in) {
  const Type& x = in.operand(0);
  return {{x.dtype, {ceil_div(x.numel(), shards_of(in))}, {}}};
}

Types infer_all_gather(const InferInput& in) {
  const Type& x = in.operand(0);
  const Type whole{x.dtype, ints_of(in.attrs(), ir::attr::size), {}};
  const Dims part = {ceil_div(whole.numel(), shards_of(in))};
  USER_CHECK(x.sizes == part, "[all_gather] x is ", x.text(), ", one of ", shards_of(in),
             " parts of ", whole.text(), " has ", part[0],
             " elements. Give it the part that `shard` makes.");
  return {whole};
}

const AttrDef shards_attr = {"shards", 1, true};
// Written by the step place.
const AttrDef bytes_attr = {"bytes", 0};

}  // namespace

bool is_collective(const ir::Op& op) {
  return op.name == ir::op::all_reduce || op.name == ir::op::reduce_scatter ||
         op.name == ir::op::all_gather || op.name == ir::op::shard;
}

bool is_sharded(const ir::Op& state) {
  const ir::Attr* sizes = state.attrs.find(ir::attr::shard_of);
  return sizes != nullptr && !sizes->is_none();
}

std::vector<OpDef> collective_ops() {
  return {
      {.name = "all_reduce",
       .doc = "The sum or the mean of each operand over all replicas, by a binary tree over the "
              "numbers of the replicas. The engine runs it: every replica gets the same bits. With "
              "`group_size`, over the replicas of a group of so many: neighbours, or "
              "(`orthogonal`) every n-th replica where there are n groups. The step place joins "
              "several of these ops into one.",
       .operands = {"x*"},
       .results = {"outs*"},
       .attrs = {{"op", "sum"}, {"group_size", 0}, {"orthogonal", false}},
       .infer = infer_all_reduce,
       .flops = elements_of_results,
       .places_for = own_operand},
      {.name = "reduce_scatter",
       .doc = "One part of the sum or the mean of `x` over all replicas: replica r gets part r of "
              "`shards`, as `shard` cuts them. Its elements have the bits that `all_reduce` gives "
              "them. `bytes` is what a replica receives from the others.",
       .operands = {"x"},
       .attrs = {{"op", "sum"}, shards_attr, bytes_attr},
       .infer = infer_part,
       .flops = flops_of_result<>},
      {.name = "shard",
       .doc = "The replica's own part of `x`, which all replicas have: replica r gets elements "
              "[r * n, (r + 1) * n) of the row-major elements, where n is their number divided by "
              "`shards`, rounded up. What lies behind the last element repeats it.",
       .operands = {"x"},
       .attrs = {shards_attr},
       .infer = infer_part,
       .flops = none},
      {.name = "all_gather",
       .doc = "The tensor of sizes `size`. Each replica has the part `x` of it, as `shard` "
              "makes it. `bytes` is what a replica receives from the others.",
       .operands = {"x"},
       .attrs = {{"size", ir::AttrList{}, true}, shards_attr, bytes_attr},
       .infer = infer_all_gather,
       .flops = none},
  };
}

}  // namespace poptorch::ops
