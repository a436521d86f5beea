// The parts of a training step. Each op that runs on an IPU names its part by the attribute `part`.
#pragma once

#include <optional>
#include <string_view>

#include "ir/graph.h"

namespace poptorch::ir {

enum class Part { forward, backward, update };
const char* name_of(Part part);
std::optional<Part> part_from(std::string_view name);

// The part that an op names; forward where it names none. In a module without `part` all ops are
// forward (ir/verify.h).
Part part_of(const Op& op);

// Whether the op itself runs on an IPU. A loop does not, the ops of its body do; `strategy` and
// `tensor_location` describe the whole program.
bool runs_on_ipu(OpName op_name);

}  // namespace poptorch::ir
