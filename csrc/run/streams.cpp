#include "run/streams.h"

#include "support/error.h"
#include "support/mutant.h"

namespace poptorch::run {

OutputMode output_mode_from_name(std::string_view name) {
  if (name == "all") return OutputMode::all;
  if (name == "final") return OutputMode::final;
  if (name == "every_n") return OutputMode::every_n;
  if (name == "sum") return OutputMode::sum;
  if (name == "none") return OutputMode::none;
  throw_user_error(concat("[run] unknown output mode \"", name,
                          "\". Use one of: all, final, every_n, sum, none."));
}

int64_t SliceMap::host_slices() const {
  if (repeat) return 1;
  switch (mode) {
    case OutputMode::final:
    case OutputMode::sum: return groups.replicas;
    case OutputMode::every_n: return iterations / period * groups.replicas * per_iteration;
    case OutputMode::none: return 0;
    case OutputMode::all: break;
  }
  return iterations * groups.count() * per_iteration;
}

int64_t SliceMap::input_slice(const Step& step) const {
  if (repeat) return 0;
  const int64_t group = groups.of(step.replica);
  return (step.iteration * groups.count() + group) * per_iteration + step.inner;
}

int64_t SliceMap::output_slice(const Step& step) const {
  switch (mode) {
    case OutputMode::final: return is_last(step) ? step.replica : -1;
    case OutputMode::sum: return step.replica;
    case OutputMode::every_n: {
      if ((step.iteration + 1) % period != 0) return -1;
      const int64_t kept = (step.iteration + 1) / period - 1;
      return (kept * groups.replicas + step.replica) * per_iteration + step.inner;
    }
    case OutputMode::none: return -1;
    case OutputMode::all: break;
  }
  const bool swaps = MUTANT(outputs_by_replica_first);
  const int64_t outer = swaps ? step.replica * iterations + step.iteration
                              : step.iteration * groups.replicas + step.replica;
  return outer * per_iteration + step.inner;
}

bool SliceMap::is_last(const Step& step) const {
  return step.iteration == iterations - 1 && step.inner == per_iteration - 1;
}

bool SliceMap::adds(const Step& step) const {
  return mode == OutputMode::sum && (step.iteration > 0 || step.inner > 0);
}

}  // namespace poptorch::run
