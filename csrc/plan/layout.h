// Reads what plan wrote.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "ir/graph.h"

namespace poptorch::plan {

// The address of a value, or of an op's result by its index; an internal error when there is none.
int64_t addr_of(const ir::Value& value);
int64_t assign_addr(const ir::Op& assign);

// The operand whose memory a result takes; -1: none.
int inplace_operand(const ir::Value& result);

// States of at least this size that no graph assigns lie behind everything else: the engine need
// not give them memory where the host's can be read (run/memory/shared_pages.h).
constexpr int64_t shareable_bytes = 256 << 10;
std::set<std::string> shareable_states(const ir::Module& module);

// Where the last value, state or scratch of the module ends.
int64_t arena_bytes(const ir::Module& module);

}  // namespace poptorch::plan
