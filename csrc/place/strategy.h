// What the op `strategy` says: where each block runs, and what phases mean for numbers and
// transfers.
//
//   strategy {blocks=[["A", 0, 0, 0], ["B", 0, 0, 1]], kind="serial_phased", phases=2}
//
// A block's row holds its name, IPU, stage, and the number of its phase in the forward pass.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "place/part.h"

namespace poptorch::place {

// Smaller values stay on the chip.
constexpr int64_t least_off_chip_elements = 2;

// Where an op runs. `phase` is that of the forward pass; the backward pass of it has its own number
// (Strategy::phase_number).
struct Spot {
  int64_t phase = 0;
  int64_t stage = 0;
  int64_t ipu = 0;

  auto operator<=>(const Spot&) const = default;
};

class Strategy {
 public:
  // Everything on IPU 0.
  Strategy() = default;
  // A user error where the attributes make no sense.
  explicit Strategy(const ir::Op& op);

  // Of ops before the first block.
  const Spot& outside() const { return outside_; }
  // An internal error when the strategy does not know the block.
  const Spot& spot_of(const std::string& block) const;
  // In the order of the op.
  const std::vector<std::pair<std::string, Spot>>& blocks() const { return blocks_; }

  bool is_phased() const { return is_phased_; }
  // The number that an op of this part of the step has in a phase of the forward pass.
  int64_t phase_number(int64_t phase, Part part) const;
  // Whether a value that one part makes is in streaming memory until the other part reads it, in
  // another phase.
  bool leaves_chip(Part made, Part read) const;
  // Whether a state is kept in streaming memory.
  bool is_off_chip(const ir::Op& state) const;

 private:
  enum class Liveness { always, after_fwd, after_fwd_no_overlap, after_each_phase };

  static Liveness liveness_from(const std::string& name);
  int64_t stride() const;

  bool is_phased_ = false;
  bool separate_backward_ = false;
  Liveness liveness_ = Liveness::always;
  int64_t phases_ = 1;
  Spot outside_;
  std::vector<std::pair<std::string, Spot>> blocks_;
};

}  // namespace poptorch::place
