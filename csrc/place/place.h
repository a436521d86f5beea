// Step 4: which IPU and which pipeline stage each op belongs to.
//
//   %0 = linear %x, %w {block="first", block_ipu=1}   =>   %0 = linear %x, %w {ipu=1, stage=1}
//
// An op with a block annotation goes to the block's IPU. Without one, a forward op stays where the
// op before it is, a backward op goes beside the forward op whose value it uses, an update beside
// its state. Sources (states, constants, inputs) go to their first user. The stage is the IPU's
// number: one strategy so far, in which the stages run one after the other.
#pragma once

#include "ir/graph.h"

namespace poptorch::place {

// Writes `ipu` and `stage` on every op; removes `block` and `block_ipu`.
void place(ir::Module& module);

enum class Phase { forward, backward, update };
const char* name_of(Phase phase);

// The part of a training step that an op belongs to: what `phase` says where translate wrote it,
// else by `backward` and by the op's name.
Phase phase_of(const ir::Op& op);

}  // namespace poptorch::place
