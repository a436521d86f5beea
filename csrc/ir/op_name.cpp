#include "ir/op_name.h"

#include <mutex>
#include <unordered_map>

namespace poptorch::ir {

namespace {

struct Interned {
  std::string text;
  OpName::Entry entry;
};

class Table {
 public:
  Table() {
#define OP_NAME(name) known_.emplace(op::name##_entry.text, &op::name##_entry);
#include "ir/op_names.def"
#undef OP_NAME
  }

  const OpName::Entry* find_or_add(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(text); found != known_.end()) return found->second;
    // Never freed, as the table: names may be used until the process ends.
    auto* added = new Interned{std::string(text), {}};
    added->entry.text = added->text;
    known_.emplace(added->text, &added->entry);
    return &added->entry;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string_view, const OpName::Entry*> known_;
};

// A function's static: kernels are registered before main, in the order the linker chose.
Table& table() {
  static auto* const names = new Table;
  return *names;
}

}  // namespace

OpName::OpName(std::string_view text)
    : entry_(text.empty() ? nullptr : table().find_or_add(text)) {}

}  // namespace poptorch::ir
