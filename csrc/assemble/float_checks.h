// What an op is looked at for, when floating-point exceptions are on.
#pragma once

#include <string>
#include <unordered_map>

#include "assemble/program.h"
#include "ir/graph.h"

namespace poptorch::assemble {

// Number of uses of each value.
using Uses = std::unordered_map<const ir::Value*, int>;

// `name`: what messages call the op.
FloatCheck float_check_of(const ir::Op& op, const std::string& name, const Uses& uses);

}  // namespace poptorch::assemble
