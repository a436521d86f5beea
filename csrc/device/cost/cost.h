// What one op costs on one IPU: cycles, and bytes of the memory of its fullest tile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/target.h"
#include "ir/graph.h"

namespace poptorch::device {

// What ops without attributes of their own (available_memory, partials_type) go by.
struct Settings {
  double memory_proportion = 0.6;  // of a tile's bytes that an op may use while it runs
  int64_t partial_bytes = 4;       // of the partial sums of float16 products: 4 or 2
  bool has_stable_norm = false;    // norms compute the mean first, then the variance around it
  bool has_dithering = false;      // convolutions begin on tiles of their own
  int64_t io_tiles = 0;            // of an IPU: they transfer data and do not compute
  int64_t replicas = 1;
  int64_t ipus = 1;  // of a replica

  bool operator==(const Settings&) const = default;
};

// Attributes of convolutions that the CPU computes as products. On an IPU they are convolutions.
// Of the product: its pass, groups, images, channels of a group before and after, then for each
// dimension the sizes before and after, kernel, stride, padding and dilation.
inline constexpr ir::AttrName conv_sizes{std::string_view("conv_sizes")};
// Of the ops that only order elements for the product, as im2col does: they cost nothing.
inline constexpr ir::AttrName im2col{std::string_view("im2col")};

// Of an all_gather that is only summed: an IPU exchanges the sums of the parts.
inline constexpr ir::AttrName is_summed{std::string_view("is_summed")};

struct Cost {
  // Cycles. They do not overlap.
  double compute = 0;
  double exchange = 0;
  double sync = 0;
  double steps = 0;  // of exchange, sync and computing
  // Bytes on the fullest tile.
  double always_bytes = 0;      // code, state of vertices, code of the exchange
  double temporary_bytes = 0;   // while the op runs
  double operand_bytes = 0;     // operands and results
  double interleaved_bytes = 0;  // of the temporary ones: partial sums of the matrix unit
  bool has_elements = false;  // operands are read together: each needs memory elements of its own
  bool is_bound = false;  // no rule for the op: the least by its bytes and FLOPs
  std::string plan;       // of a product or look-up, in words

  double cycles() const { return compute + exchange + sync; }
  void scale(double factor) {
    compute *= factor;
    exchange *= factor;
    sync *= factor;
  }
};

// The part of an IPU that computes: all tiles but the I/O tiles.
Target compute_part(const Target& target, const Settings& settings);

// The op must be verified; the body of a loop does not count. `target` is a whole IPU.
Cost cost_of(const ir::Op& op, const Target& target, const Settings& settings = {});

// The rules of costs come by family.
struct Family {
  std::string_view name;  // bound: ops without a rule
  double error = 0;       // 90 % of points lie within a factor of 1 + error
};
const Family& family_of(ir::OpName name);

// Of an exchange of so many bytes between neighbouring IPUs, without the step that it is part of.
double neighbour_cycles(double bytes, const Target& target);

// Highest address in use on a tile: partial sums of the matrix unit lie in interleaved memory, of
// which the start is fixed, and operands that are read together in memory elements of their own.
double peak_with_gaps(const Cost& cost, const Target& target);

}  // namespace poptorch::device
