// Cycles of the code that computes a part of a convolution on one tile.
#pragma once

#include <cstdint>
#include <vector>

#include "device/partition/problem.h"
#include "device/target.h"

namespace poptorch::device {

// amp: the matrix unit. slic: the matrix unit with a window of 1 x 4 over few channels.
// hmac: products of vectors along the input channels. vmac: vectors of groups.
// outer: one input channel.
enum class Vertex { amp, slic, hmac, vmac, outer };

// A vertex with its shapes. Channels and groups are padded to whole groups of them.
struct Method {
  Vertex vertex = Vertex::amp;
  int64_t conv_group = 1;  // conv groups that one vertex computes at once
  int64_t in_group = 1;
  int64_t out_group = 1;
  int64_t units = 0;          // output channels at once
  int64_t partial_bytes = 4;  // of its results

  // Least cycles for one output position, kernel position and group of channels.
  double row_cycles(int64_t item_bytes) const;
};

std::vector<Method> methods_for(const Problem& problem, const Target& target);

// What the fullest tile computes.
struct Share {
  int64_t conv_groups = 1;  // each number of groups counts groups of the method's size
  int64_t in_groups = 1;
  int64_t out_groups = 1;
  int64_t batch = 1;
  int64_t outer = 1;  // output positions
  int64_t inner = 1;
  int64_t kernel_outer = 1;  // positions of the kernel
  int64_t kernel_inner = 1;
};

double vertex_cycles(const Method& method, const Share& share, const Problem& problem,
                     const Target& target);

// Sum of `depth` partial results to `outputs` elements on a tile, in one stage.
double reduce_cycles(double outputs, double depth, double partial_bytes, const Target& target);

}  // namespace poptorch::device
