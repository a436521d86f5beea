// Kinds of IPUs, and systems of several of them: the rows of targets.def and systems.def.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace poptorch::device {

struct Target {
  std::string_view name;
  int64_t version;  // as ipuHardwareVersion() gives it
  int64_t tiles;
  int64_t tile_bytes;
  double clock_hz;
  int64_t links;                 // IPU-Links of one IPU
  double link_bytes_per_second;  // of one link, in one direction
  std::string_view source;
};

struct System {
  std::string_view name;
  int64_t ipus;
  const Target* target;
  int64_t hosts;
};

const std::vector<Target>& all_targets();
const std::vector<System>& all_systems();

}  // namespace poptorch::device
