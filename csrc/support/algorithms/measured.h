// The fastest of several algorithms for one problem, by running them on this machine.
//
//   const Measured* found = measured("gemm f32 788x384x1536", {"blas", "blocked"}, make_trials);
//   if (found != nullptr) ... found->timings[0].algorithm ...
//
// A problem is measured once. The result is kept in the process and in a file of the user's cache
// folder, for this processor: the first one that is stored stays, so all runs and all processes of
// a machine choose alike and compute the same bits. Where it cannot be stored nothing is measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace poptorch {

struct Timing {
  std::string algorithm;
  double us = 0;
};

struct Measured {
  std::vector<Timing> timings;  // the chosen one first

  // "blocked (measured 812 us, blas 990 us)"
  std::string text() const;
};

// Runs the algorithm once, on the calling thread alone: the time of its core counts.
using Trial = std::function<void()>;

// Chooses the first of several `algorithms`, unless a different one is faster by more than noise.
// nullptr: POPTORCH_MEASURE=0, no file to keep the result in, or `make_trials` gave none.
// `make_trials` gives one trial for each algorithm; it may call `measured` itself. The result lives
// as long as the process.
const Measured* measured(const std::string& problem, const std::vector<std::string>& algorithms,
                         const std::function<std::vector<Trial>()>& make_trials);

}  // namespace poptorch
