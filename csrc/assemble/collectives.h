// Collectives of a program, from the attributes of their ops.
#pragma once

#include "assemble/program.h"

namespace poptorch::assemble {

Collective collective_of(const ir::Op& op);

}  // namespace poptorch::assemble
