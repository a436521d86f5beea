// Ops of which an IPU has one program: they compute the same on the same types, wherever they are.
#pragma once

#include <string>

#include "ir/graph.h"

namespace poptorch::estimate {

// Name, types and the attributes that say what the op computes and how it is planned. Equal text:
// equal costs on one target, and one program on an IPU.
std::string op_key(const ir::Op& op);

}  // namespace poptorch::estimate
