#include "assemble/collectives.h"

#include "ops/op_def.h"

namespace poptorch::assemble {

namespace {

Collective::Kind kind_of(const ir::Op& op) {
  if (op.name == ir::op::reduce_scatter) return Collective::Kind::reduce_scatter;
  if (op.name == ir::op::all_gather) return Collective::Kind::all_gather;
  if (op.name == ir::op::shard) return Collective::Kind::shard;
  return Collective::Kind::all_reduce;
}

}  // namespace

Collective collective_of(const ir::Op& op) {
  Collective what;
  what.kind = kind_of(op);
  what.dtype = op.operand(0)->type.dtype;
  const bool gathers = what.kind == Collective::Kind::all_gather;
  for (size_t i = 0; i < op.results.size(); ++i) {
    what.numels.push_back((gathers ? op.result(i) : op.operand(i))->type.numel());
  }
  const ir::Attr* reduction = op.attrs.find(ir::attr::op);
  what.is_mean = reduction != nullptr && *reduction == ir::Attr("mean");
  what.group_size = op.attrs.get_int(ir::attr::group_size, 0);
  what.is_orthogonal = op.attrs.get_bool(ir::attr::orthogonal, false);
  what.shards = op.attrs.get_int(ir::attr::shards, 1);
  return what;
}

}  // namespace poptorch::assemble
