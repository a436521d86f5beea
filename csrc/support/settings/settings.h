// What the environment chooses among right ways to compute. It is read once for each program, when
// it is compiled or loaded, and holds for as long as it exists: all that asks while it is compiled
// or runs gets one set, on all threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/cpu/isa.h"

namespace poptorch {

// An algorithm that is to be used wherever it applies (support/algorithms/algorithm.h).
struct ForcedAlgorithm {
  std::string family, name;
};

struct Settings {
  std::vector<std::string> off;     // POPTORCH_OFF: what is turned off, as it stands there
  std::vector<ForcedAlgorithm> algorithms;  // POPTORCH_ALGORITHM
  simd::Isa isa = simd::Isa::base;  // POPTORCH_ISA; where it is not set, the machine's best one
  bool has_gemm_loops = false;      // POPTORCH_GEMM: f32 products by loops of our own, not by the
                                    // BLAS; where it is not set, unless the processor is Intel's
  bool names_gemm = false;          // whether POPTORCH_GEMM is set
  bool measures = true;             // POPTORCH_MEASURE: times algorithms (algorithms/measured.h)
  std::string cache_folder;         // POPTORCH_CACHE_DIR or the user's cache; empty: there is none

  int library_threads = 0;  // that calls of torch and oneDNN use, for which sums may depend on it,
                            // on whichever thread of the program; 0: those that the kernel may use

  // A user error for a word that a variable does not take.
  static Settings from_environment();

  bool is_on(std::string_view name) const;
};

// Those of the innermost scope of this thread. Outside of any scope: those of the environment now.
const Settings& settings();

// The same, to be handed to another thread; nullptr: this one is in no scope.
const Settings* scoped_settings();

// Makes settings the present ones of this thread.
class SettingsScope {
 public:
  SettingsScope();  // keeps the present ones
  explicit SettingsScope(const Settings* settings);  // not owned; nullptr: none
  ~SettingsScope();
  SettingsScope(const SettingsScope&) = delete;
  SettingsScope& operator=(const SettingsScope&) = delete;

 private:
  std::optional<Settings> own_;
  const Settings* outer_;
};

}  // namespace poptorch
