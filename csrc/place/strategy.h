// What the op `strategy` says: where each block runs, and what phases mean for numbers and
// transfers.
//
//   strategy {blocks=[["A", 0, 0, 0], ["B", 0, 0, 1]], kind="serial_phased", phases=2}
//
// A block's row holds its name, IPU, stage, and the number of its phase in the forward pass. What
// an op `tensor_location` says of a kind of tensors goes before what phases mean for it:
//
//   tensor_location {least_elements=64, role="optimizer", storage="off_chip"}
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/part.h"

namespace poptorch::place {

// Where the tensors of one kind are kept.
struct Location {
  enum class Storage { strategy, on_chip, off_chip };  // strategy: off the chip between phases

  Storage storage = Storage::strategy;
  int64_t least_elements = 2;  // smaller ones stay on the chip
  bool loads_by_io_tiles = false;
  bool stores_by_io_tiles = false;
};

// When activations leave the chip.
enum class Liveness { always, after_fwd, after_fwd_no_overlap, after_each_phase };

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
  // Without a name: that of ops before the first block. An internal error when the strategy does
  // not list the block.
  const Spot& spot_of(const std::string& block) const;
  // In the order of the op.
  const std::vector<std::pair<std::string, Spot>>& blocks() const { return blocks_; }

  bool is_phased() const { return is_phased_; }
  // The number that an op of this part of the step has in a phase of the forward pass.
  int64_t phase_number(int64_t phase, ir::Part part) const;
  // Takes what an op `tensor_location` says; a user error where that makes no sense.
  void locate(const ir::Op& op);
  // Whether an activation or its gradient is in streaming memory until this op reads it.
  bool leaves_chip(const ir::Value& value, const ir::Op& reader) const;
  // Whether a tensor that outlives a step is kept in streaming memory: one of the role "parameter",
  // "optimizer" or "accumulator".
  bool is_off_chip(std::string_view role, const ir::Type& type) const;
  Location location_of(std::string_view role) const;

 private:
  int64_t stride() const;

  bool is_phased_ = false;
  bool separate_backward_ = false;
  Liveness liveness_ = Liveness::always;
  int64_t phases_ = 1;
  Spot outside_;
  std::vector<std::pair<std::string, Spot>> blocks_;
  std::map<std::string, Location, std::less<>> locations_;  // by role
};

}  // namespace poptorch::place
