#include "assemble/interface.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/layout.h"
#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::assemble {

int Interface::stream_of(const ir::Op& op, const ir::Value& value, int64_t steps) {
  const std::string& name = op.attrs.get_string(ir::attr::stream);
  const bool is_input = op.name == ir::op::stream_in;
  const bool repeat = is_input && ops::attr_of(op, ir::attr::repeat) == ir::Attr(true);
  const auto [found, is_new] = streams_.try_emplace(name, static_cast<int>(streams_.size()));
  if (is_new) program_.streams.push_back({name, is_input, value.type, repeat, steps});
  const Stream& stream = program_.streams[static_cast<size_t>(found->second)];
  INTERNAL_CHECK(stream.is_input == is_input && stream.type == value.type &&
                     stream.per_iteration == steps,
                 "[assemble] stream \"", name, "\" is used in two ways: `", op.text(), "`");
  return found->second;
}

void Interface::add_state(const ir::Op& op, const std::set<std::string>& shareable) {
  const std::string& path = op.attrs.get_string(ir::attr::path);
  if (preprocessed_.assigned.contains(path)) return;  // not visible outside
  const auto [found, is_new] = states_.try_emplace(path, states_.size());
  const ir::Value& value = op.name == ir::op::state ? *op.result() : *op.operand(0);
  if (is_new) {
    program_.states.push_back({path, value.type, 0, "", op.attrs.get_int(ir::attr::addr),
                               preprocessed_.read.contains(path), shareable.contains(path)});
  }
  State& state = program_.states[found->second];
  if (op.name == ir::op::assign) state.is_assigned = true;
  if (op.name == ir::op::state && ops::is_sharded(op)) {
    state.shard = value.type.numel();
    state.type.sizes = op.attrs.get_ints(ir::attr::shard_of);
    state.is_shareable = false;
  }
  if (op.name == ir::op::state && ops::is_channels_last(op)) {
    state.type.sizes = ops::channels_first(value.type).sizes;
    state.is_channels_last = true;
  }
  const ir::Attr* role = op.attrs.find(ir::attr::role);
  if (role != nullptr && !role->is_none()) state.role = op.attrs.get_string(ir::attr::role);
}

void Interface::sort_by_name() {
  using Kind = Instruction::Kind;
  std::vector<int> order(program_.streams.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto key = [&](int i) {
    const Stream& stream = program_.streams[static_cast<size_t>(i)];
    return std::pair<bool, std::string>(!stream.is_input, stream.name);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  std::vector<int> position(order.size());
  std::vector<Stream> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    position[static_cast<size_t>(order[i])] = static_cast<int>(i);
    sorted.push_back(program_.streams[static_cast<size_t>(order[i])]);
  }
  program_.streams = std::move(sorted);
  for (Direct& direct : program_.directs) {
    direct.stream = position[static_cast<size_t>(direct.stream)];
  }
  for (Block& block : program_.blocks) {
    for (Instruction& instruction : block.instructions) {
      if (instruction.kind == Kind::stream_in || instruction.kind == Kind::stream_out) {
        instruction.index = position[static_cast<size_t>(instruction.index)];
      }
    }
  }
  std::sort(program_.states.begin(), program_.states.end(),
            [](const State& a, const State& b) { return a.path < b.path; });
}

}  // namespace poptorch::assemble
