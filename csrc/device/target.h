// Kinds of IPUs: the rows of targets.def.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace poptorch::device {

// Rates are those of one tile in one cycle unless a name says otherwise.
struct Target {
  std::string_view name;
  int64_t version = 0;  // as ipuHardwareVersion() gives it
  int64_t tiles = 0;
  int64_t workers = 0;
  int64_t tile_bytes = 0;
  int64_t interleaved_start = 0;  // bytes below interleaved memory, in which partial sums lie
  int64_t element_bytes = 0;      // of a memory element: operands read together lie in several
  // Output channels that the matrix unit computes at once. A row takes 4 cycles in float16 and
  // float8, 8 cycles in float32. 0: the unit does not take the type.
  int64_t units_f16 = 0;           // with float32 partials
  int64_t units_f16_partials = 0;  // with float16 partials
  int64_t units_f32 = 0;
  double exchange_bytes = 0;  // received; twice as much where a pair of tiles receives the same
  double copy_bytes = 0;      // of contiguous memory
  double sync_cycles = 0;     // all tiles of an IPU
  double launch_cycles = 0;   // of one compute step
  double step_cycles = 0;     // of a step but its work: set-up of its exchange, sync and launch
  double op_cycles = 0;       // of an op beside its steps
  double link_efficiency = 0;
  double host_call_seconds = 0;
  double streaming_bytes_per_second = 0;  // of one IPU
  double global_sync_seconds = 0;         // of one hop
  double clock_hz = 0;
  int64_t units_f8 = 0;
  int64_t links = 0;                 // IPU-Links of one IPU
  double link_bytes_per_second = 0;  // of one link, in one direction
  double host_bytes_per_second = 0;
  int64_t streaming_bytes = 0;  // of one IPU
  std::string_view source;
};

const std::vector<Target>& all_targets();
// The row of that name; a user error that lists the names when there is none.
const Target& target_named(std::string_view name);

}  // namespace poptorch::device
