// The attribute `layout` of ops on images: where their channels are. With "channels_last" images
// are [batch, spatial..., channels] and weights [outputs, spatial..., inputs], row-major like every
// value; other attributes mean the same in both layouts.
#pragma once

#include "ops/op_def.h"

namespace poptorch::ops {

extern const AttrDef layout_attr;

// A user error when the attribute has a value that is none.
bool is_channels_last(const ir::Op& op);

// The same elements with channels as dimension 1, and back: sizes and strides in another order.
ir::Type channels_first(const ir::Type& type);
ir::Type channels_last(const ir::Type& type);

// Whether the memory layout of a type with channels as dimension 1 is channels_last. A type with
// fewer than three dimensions has no layout: whether it is row-major.
bool lies_channels_last(const ir::Type& type);

// A copy of the op in the layout channels_first: images and weights, the operands and results of
// three and more dimensions, have strides instead.
class ChannelsFirst {
 public:
  explicit ChannelsFirst(const ir::Op& op);
  ChannelsFirst(const ChannelsFirst&) = delete;
  ChannelsFirst& operator=(const ChannelsFirst&) = delete;

  const ir::Op& op() const { return op_; }

 private:
  ir::Op op_;
  std::vector<std::unique_ptr<ir::Value>> operands_;
};

// A type rule that is written for channels_first, for both.
template <Infer rule>
std::vector<ir::Type> in_any_layout(const InferInput& in) {
  if (!is_channels_last(in.op)) return rule(in);
  const ChannelsFirst first(in.op);
  std::vector<ir::Type> types = rule({first.op()});
  for (ir::Type& type : types) {
    type = channels_last(type);
    type.strides.clear();
  }
  return types;
}

}  // namespace poptorch::ops
