// Multi-convolutions: convolutions that run at the same time, each on tiles of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "device/cost/cost.h"
#include "ir/graph.h"

namespace poptorch::device {

// Attributes: the tiles of a convolution, and its part of the cycles of the whole.
inline constexpr ir::AttrName multi_conv_tiles{std::string_view("multi_conv_tiles")};
inline constexpr ir::AttrName multi_conv_cycles{std::string_view("multi_conv_cycles")};

// Notes on each convolution of a parallel multi-convolution on how many tiles it runs, and its part
// of the cycles of the whole: cost_of reads both. Convolutions that need each other's results, that
// have no room, or that are faster one after the other have no such note.
void share_tiles(ir::Module& module, const Target& target,
                 const std::function<Settings(int64_t ipu)>& settings_of);

}  // namespace poptorch::device
