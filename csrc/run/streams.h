// Host streams: which slice of a host tensor a step reads or writes.
#pragma once

#include <cstdint>
#include <string_view>

#include "run/replica_groups.h"

namespace poptorch::run {

// Which steps of an output the host gets. all: every step; final: the last micro-step; every_n: all
// micro-steps of the device iterations n-1, 2n-1, ...; sum: the element-wise sum over all steps. Of
// each replica, in replica order. none: no step; the host has no tensor for it.
enum class OutputMode : uint8_t { all, final, every_n, sum, none };

// The mode of that name; a user error that lists the names when there is none.
OutputMode output_mode_from_name(std::string_view name);

// Where a step stands: device iteration, replica, and the number of the step within both.
struct Step {
  int64_t iteration = 0;
  int64_t replica = 0;
  int64_t inner = 0;
};

// Numbers of slices for one stream in one program; see run/executable.h for the order.
struct SliceMap {
  OutputMode mode = OutputMode::all;
  int64_t period = 1;
  int64_t iterations = 1;
  int64_t per_iteration = 1;
  bool repeat = false;
  ReplicaGroups groups;  // replicas of one group read the same slices of an input

  int64_t host_slices() const;
  // The slice that an input step reads.
  int64_t input_slice(const Step& step) const;
  // Whether the time of an input step counts: of replicas that read one slice, that of the first.
  bool is_timed(const Step& step) const { return !repeat && groups.is_first(step.replica); }
  // The slice that an output step writes; -1 when it is not returned.
  int64_t output_slice(const Step& step) const;
  // Under `sum`: whether the step is the first one (it overwrites) or a later one (it adds).
  bool adds(const Step& step) const;
  bool is_last(const Step& step) const;
};

}  // namespace poptorch::run
