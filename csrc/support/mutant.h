// Mutants: mistakes made on purpose, to find out whether tests find them. MUTANT(name) is
// `false` in what is shipped, and leaves nothing behind there. In the test build, which defines
// POPTORCH_MUTANTS, it says whether the environment variable POPTORCH_MUTANT held this name of
// mutants.def when the extension was loaded.
//
//   const int64_t divisor = MUTANT(running_var_biased) ? count : count - 1;
#pragma once

#ifdef POPTORCH_MUTANTS

#include <string_view>
#include <vector>

namespace poptorch {

enum class Mutant {
#define MISTAKE(name, doc) name,
#define IGNORED(name, doc, test) name,
#include "support/mutants.def"
#undef IGNORED
#undef MISTAKE
  none,
};

extern const Mutant active_mutant;

struct MutantRow {
  std::string_view name, doc;
};

// The rows of mutants.def.
const std::vector<MutantRow>& all_mutants();

// A user error if POPTORCH_MUTANT holds another name.
void check_mutant();

}  // namespace poptorch

#define MUTANT(name) (::poptorch::active_mutant == ::poptorch::Mutant::name)
#else
#define MUTANT(name) false
#endif
