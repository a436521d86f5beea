// Names of attributes. Those that C++ code uses are constants, `ir::attr::dim`: a misspelt one does
// not compile, and neither does text in its place. Others come from IR text, Python and rows of the
// op table.
#pragma once

#include <string>
#include <string_view>

namespace poptorch::ir {

// Refers to text that must outlive it.
struct AttrName {
  std::string_view text;

  constexpr AttrName(std::string_view text) : text(text) {}
  AttrName(const std::string& text) : text(text) {}
  AttrName(const char*) = delete;
  constexpr operator std::string_view() const { return text; }
  friend constexpr bool operator==(AttrName, AttrName) = default;
};

// The names that C++ code uses.
namespace attr {

#define ATTR_NAME(name) inline constexpr AttrName name{std::string_view(#name)};
#include "ir/attr_names.def"
#undef ATTR_NAME

}  // namespace attr

}  // namespace poptorch::ir
