// Step 4: which IPU, stage and phase each op belongs to, and what must be moved between them.
//
//   strategy {blocks=[["first", 0, 0], ["second", 1, 1]], kind="sharded"}
//   ...
//   %0 = linear %x, %w {block="first"}
//   %1 = relu %0 {block="second"}
// =>
//   strategy {kind="sharded", stages=2}
//   ...
//   %0 = linear %x, %w {ipu=0, stage=0}
//   %2 = ipu_copy %0 {bytes=64, from=0, ipu=1, stage=1}
//   %1 = relu %2 {ipu=1, stage=1}
//
// An op of a block runs where the op `strategy` says. Without a block, a forward op stays where the
// op before it is (the first one of a body where the loop is), or on the IPU of the state that it
// alone makes a new value for. A backward op has the place of the forward op whose value it uses,
// or of the last gradient that it adds up, an update the place of its state. What has no operands
// goes to its users: states, inputs and streams to the first one, a copy of anything else
// (constants, `full`, ...) to each IPU that reads it.
#pragma once

#include "ir/graph.h"
#include "place/strategy.h"

namespace poptorch::place {

// What runs at one place: a row of the partition summary.
struct Share {
  Spot spot;
  std::vector<std::string> blocks;   // in the order of the op `strategy`
  std::vector<std::string> modules;  // whose forward ops run here, in their order
  std::vector<std::string> parameters;
  int64_t parameter_elements = 0;
  int64_t parameter_bytes = 0;
  int64_t ops = 0;           // of all parts of the step, moves left out
  int64_t copied_bytes = 0;  // from other IPUs, each time that the ops run
};

// Writes `ipu` and `stage`, in phased execution `phase`, on each op that runs on an IPU; puts in
// copies between IPUs and transfers to streaming memory; removes `block` and `tensor_location`, and
// writes the resulting strategy into the op `strategy`. Returns a row for each stage, in order.
std::vector<Share> place(ir::Module& module);

// Whether the op has no operands and no effects: what it makes depends on nothing of its place.
bool is_source(const ir::Op& op);

// Bytes that a move of a value of this type moves.
int64_t moved_bytes(const ir::Type& type);

// The op `strategy` of a module; nullptr where there is none.
ir::Op* find_strategy(const ir::Module& module);

// The second half of it, for a module whose ops all have their places.
void insert_moves(ir::Module& module, const Strategy& strategy);

}  // namespace poptorch::place
