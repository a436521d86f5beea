// Which replicas belong together: those that read the same inputs, or hold the same weight.
#pragma once

#include <cstdint>

namespace poptorch::run {

// Groups of equal size: of neighbours, or of every n-th replica where there are n groups. The size
// divides the number of replicas.
struct ReplicaGroups {
  int64_t replicas = 1;
  int64_t size = 1;
  bool is_orthogonal = false;

  int64_t count() const { return replicas / size; }
  // The number of the group that a replica is in.
  int64_t of(int64_t replica) const { return is_orthogonal ? replica % count() : replica / size; }
  // Whether no replica of the same group comes before it.
  bool is_first(int64_t replica) const {
    return is_orthogonal ? replica < count() : replica % size == 0;
  }
};

}  // namespace poptorch::run
