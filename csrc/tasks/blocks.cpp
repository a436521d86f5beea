#include "tasks/blocks.h"

#include <cstddef>
#include <map>

#include "ir/part.h"
#include "place/place.h"
#include "tasks/step.h"

namespace poptorch::tasks {

std::vector<Block> blocks_of(const ir::Module& module) {
  std::vector<Block> rows(1);
  std::map<std::string, size_t> numbers = {{"", 0}};
  std::map<const ir::Op*, size_t> blocks;
  size_t current = 0;
  for (const auto& op : step_of(module).micro->ops) {
    const ir::Op& first = first_op(module, *op);
    const ir::Part part = ir::part_of(first);
    if (!is_of_task(*op) || part == ir::Part::update) continue;
    size_t block = current;
    if (first.attrs.has(ir::attr::block)) {
      const std::string& name = first.attrs.get_string(ir::attr::block);
      const auto [known, is_new] = numbers.emplace(name, rows.size());
      if (is_new) rows.push_back({name, {}, {}});
      block = known->second;
    } else if (part == ir::Part::backward) {
      for (const ir::Value* operand : op->operands) {
        const auto known = operand == nullptr ? blocks.end() : blocks.find(operand->op);
        if (known != blocks.end() && !place::is_source(*operand->op)) block = known->second;
      }
    }
    if (part == ir::Part::forward && !place::is_source(*op)) current = block;
    blocks[op.get()] = block;
    (part == ir::Part::forward ? rows[block].forward : rows[block].backward).push_back(op.get());
  }
  return rows;
}

}  // namespace poptorch::tasks
