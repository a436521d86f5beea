// IR text: the dump, the test and the bug report. The same module always prints the same bytes, and
// `print(parse(print(m))) == print(m)` byte for byte.
//
//   module  := graph+
//   graph   := "graph" name "{" op* "output" [value ("," value)*] "}"
//   op      := [value ("," value)* "="] name [value ("," value)*] ["{" pair ("," pair)* "}"]
//              [":" type ("," type)*] ["//" source]
//   pair    := key "=" attr
//   value   := "%" name | "_"              type := dtype "[" ints "]" ["(" ints ")"]
//   attr    := none | true | false | int | float | "string" | dtype:f32 | @graph
//              | [attr ("," attr)*]
//   source  := file ":" line [module-path]
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace poptorch::ir {

std::string print(const Module& module);
std::string print(const Graph& graph);

// Large constants are looked up in `constants_of` (may be null: a module that needs none).
// A syntax error is a user error with line and column and the text there.
std::unique_ptr<Module> parse(std::string_view text, const Module* constants_of = nullptr);

}  // namespace poptorch::ir
