#include "ops/evaluate.h"

#include <cstring>
#include <new>

#include "ops/kernel.h"
#include "support/error.h"
#include "support/settings/settings.h"

namespace poptorch::ops {

namespace {

struct Free {
  void operator()(std::byte* memory) const { operator delete(memory, std::align_val_t{64}); }
};

}  // namespace

std::vector<Bytes> evaluate(const ir::Op& op, const std::vector<const void*>& inputs, int threads,
                            const std::vector<int>& inplace) {
  INTERNAL_CHECK(inputs.size() == op.operands.size(), "op ", op.name, " has ", op.operands.size(),
                 " operands and ", inputs.size(), " pointers");
  const SettingsScope scope;
  const Prepared prepared = prepare({op, threads});
  std::vector<void*> ins, outs;
  for (const void* input : inputs) ins.push_back(const_cast<void*>(input));
  ins.resize(operand_slots(op), nullptr);
  std::vector<Bytes> results;
  for (const auto& result : op.results) {
    // All bits set, NaN for floats: a kernel that reads its result before writing it shows.
    results.emplace_back(static_cast<size_t>(result->type.bytes()), std::byte{0xff});
  }
  for (size_t i = 0; i < inplace.size(); ++i) {
    if (inplace[i] < 0) continue;
    const auto operand = static_cast<size_t>(inplace[i]);
    std::memcpy(results[i].data(), inputs[operand], results[i].size());
    ins[operand] = results[i].data();
  }
  for (Bytes& bytes : results) outs.push_back(bytes.data());
  const std::unique_ptr<std::byte, Free> scratch(static_cast<std::byte*>(
      operator new(prepared.scratch_bytes + 64, std::align_val_t{64})));
  std::memset(scratch.get(), 0xff, prepared.scratch_bytes);
  prepared.run({ins.data(), outs.data(), scratch.get(), threads});
  return results;
}

}  // namespace poptorch::ops
