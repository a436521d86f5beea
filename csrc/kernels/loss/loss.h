// Pieces that the kernels of losses share.
#pragma once

#include "kernels/index/rows.h"
#include "ops/families/loss.h"

namespace poptorch::kernels {

// What targets may be: a class, 0 to classes - 1, or `ignored`, which counts for nothing.
struct Classes {
  int64_t count, ignored;

  // The class of entry `at`, or -1 where it counts for nothing. Entries that are not a class are
  // recorded: threads cannot throw, so `check` comes after the loop.
  int64_t of(int64_t target, int64_t at, IndexGuard& guard) const {
    return target != ignored && guard.allows(target, count, at) ? target : -1;
  }
  template <typename Index>
  void check(std::string_view op, const IndexGuard& guard, const Index* targets) const {
    const auto at = guard.first();
    if (!at) return;
    throw_user_error(concat("[", op, "] target ", targets[*at], " at flat index ", *at,
                            " is not a class: there are ", count, ". Use 0 to ", count - 1,
                            ", or ignore_index (", ignored, ")."));
  }
};

// A weighted loss and the sum of its weights.
struct Likelihood {
  double loss = 0, weight = 0;
};

// The two results of a loss from its n parts, added up in their order.
template <typename T>
void finish(const Likelihood* parts, int64_t n, ops::Reduction reduction, T* out, T* weight) {
  Likelihood all;
  for (int64_t i = 0; i < n; ++i) {
    all.loss += parts[i].loss;
    all.weight += parts[i].weight;
  }
  *out = static_cast<T>(reduction == ops::Reduction::mean ? all.loss / all.weight : all.loss);
  *weight = static_cast<T>(all.weight);
}

}  // namespace poptorch::kernels
