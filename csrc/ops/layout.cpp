#include "ops/layout.h"

#include "ir/copy.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

constexpr const char* first_name = "channels_first";
constexpr const char* last_name = "channels_last";

bool has_channels(const ir::Type& type) { return type.rank() >= 3; }

// Moves the number at `from` to `to`.
ir::Dims moved(ir::Dims values, size_t from, size_t to) {
  const int64_t value = values[from];
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(from));
  values.insert(values.begin() + static_cast<std::ptrdiff_t>(to), value);
  return values;
}

ir::Type with_channels(const ir::Type& type, bool last) {
  if (!has_channels(type)) return type;
  const size_t back = type.sizes.size() - 1, from = last ? 1 : back, to = last ? back : 1;
  ir::Type out{type.dtype, moved(type.sizes, from, to), {}};
  out.set_strides(moved(type.actual_strides(), from, to));
  return out;
}

}  // namespace

const AttrDef layout_attr = lowered_attr("layout", first_name);

bool is_channels_last(const ir::Op& op) {
  const ir::Attr* layout = op.attrs.find(ir::attr::layout);
  if (layout == nullptr || *layout == ir::Attr(first_name)) return false;
  USER_CHECK(*layout == ir::Attr(last_name), "[", op.name, "] layout is ", layout->text(),
             ", expected \"", first_name, "\" or \"", last_name, "\". Use one of the two.");
  return true;
}

ir::Type channels_first(const ir::Type& type) { return with_channels(type, false); }
ir::Type channels_last(const ir::Type& type) { return with_channels(type, true); }

bool lies_channels_last(const ir::Type& type) { return channels_last(type).is_contiguous(); }

ChannelsFirst::ChannelsFirst(const ir::Op& op) : op_(ir::copy_apart(op)) {
  op_.attrs.set(ir::attr::layout, first_name);
  for (ir::Value*& operand : op_.operands) {
    if (operand == nullptr) continue;
    operands_.push_back(std::make_unique<ir::Value>(*operand));
    operand = operands_.back().get();
    operand->type = channels_first(operand->type);
  }
  for (const auto& result : op_.results) result->type = channels_first(result->type);
}

}  // namespace poptorch::ops
