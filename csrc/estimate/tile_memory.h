// The memory of the tiles of each IPU on a target, from the order in which the IPU runs its ops.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "estimate/cost_table.h"
#include "estimate/ipu_memory.h"

namespace poptorch::estimate {

// What the programs of ops take on each tile of an IPU. Ops that compute the same have one program.
struct ProgramBytes {
  double code = 0;
  double exchange = 0;      // code of the exchange
  double vertex_state = 0;

  double all() const { return code + exchange + vertex_state; }
};

// One op, while it runs.
struct MemoryStep {
  int64_t id = 0;  // of estimate::program_ops
  const ir::Op* op = nullptr;
  CategoryBytes live = {};      // over all tiles
  int64_t temporary_bytes = 0;  // of the op itself, on each tile
  int64_t tile_bytes = 0;       // highest address in use on the fullest tile
};

struct LiveValue {
  std::string name;
  Category category = Category::activations;
  int64_t bytes = 0;  // over all tiles
  const ir::Op* op = nullptr;
  size_t first = 0, last = 0;  // numbers of the steps that it is live in
};

struct IpuTiles {
  CategoryBytes bytes = {};       // over all tiles, at the peak
  ProgramBytes program;           // on each tile
  int64_t temporary_bytes = 0;    // at the peak, on each tile
  int64_t peak_bytes = 0;         // the highest address in use on the fullest tile: with gaps
  int64_t peak_without_gaps = 0;  // the most bytes on a tile
  int64_t mean_bytes = 0;         // of all tiles at the peak, without gaps
  std::vector<int64_t> by_tile;   // highest address in use on each tile at the peak
  size_t peak = 0;                // number of the step; 0 if there is none
  std::vector<MemoryStep> steps;  // in the order in which the IPU runs them: one round
  std::vector<LiveValue> values;  // of at least a thousandth of the bytes; largest first

  bool is_live_at_peak(const LiveValue& value) const {
    return value.first <= peak && peak <= value.last;
  }
};

// Of each IPU. The module must be as after tasks::schedule; its ops are ordered.
//
// A value lies on all tiles in grains of 8 bytes. Each begins on the tile after the last grain of
// the one before; the result of a convolution without dithering on the first tile. Partial sums of
// the matrix unit are in interleaved memory, which begins at a fixed address, so there may be a gap
// below it.
std::vector<IpuTiles> tile_memory(ir::Module& module, CostTable& table);

}  // namespace poptorch::estimate
