// Names of ops, interned: equal names are one entry of a table of the process, so that comparing
// two is comparing two addresses. Names that C++ code uses are constants, `ir::op::relu`; a
// misspelt one does not compile. Others come from IR text, Python and rows of the op table.
//
// Entries are never freed. Everything here may be called from any thread; only making a name from
// text takes a lock.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace poptorch::ir {

class OpName {
 public:
  struct Entry {
    std::string_view text;
  };

  constexpr OpName() = default;  // the empty name
  constexpr explicit OpName(const Entry* entry) : entry_(entry) {}
  explicit OpName(std::string_view text);

  constexpr std::string_view text() const { return entry_ == nullptr ? "" : entry_->text; }
  std::string str() const { return std::string(text()); }
  size_t hash() const { return std::hash<const void*>()(entry_); }

  // There is no order: that of the addresses differs from run to run.
  friend constexpr bool operator==(OpName, OpName) = default;

 private:
  const Entry* entry_ = nullptr;
};

// A name where it is registered: a row of the op table, or a kernel, writes the text.
struct RegisteredName : OpName {
  template <std::convertible_to<std::string_view> Text>
  RegisteredName(const Text& text) : OpName(std::string_view(text)) {}
};

// The names that C++ code uses.
namespace op {

#define OP_NAME(name) \
  inline constexpr OpName::Entry name##_entry{#name}; \
  inline constexpr OpName name{&name##_entry};
#include "ir/op_names.def"
#undef OP_NAME

}  // namespace op

}  // namespace poptorch::ir

template <>
struct std::hash<poptorch::ir::OpName> {
  size_t operator()(poptorch::ir::OpName name) const { return name.hash(); }
};
