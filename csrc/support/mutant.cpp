#include "support/mutant.h"

#ifdef POPTORCH_MUTANTS

#include <cstdlib>
#include <string_view>

#include "support/error.h"

namespace poptorch {

namespace {

std::string_view wanted() {
  const char* variable = std::getenv("POPTORCH_MUTANT");
  return variable == nullptr ? "" : variable;
}

Mutant find_active() {
  const std::vector<MutantRow>& rows = all_mutants();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].name == wanted()) return static_cast<Mutant>(i);
  }
  return Mutant::none;
}

}  // namespace

const std::vector<MutantRow>& all_mutants() {
  static const std::vector<MutantRow> rows = {
#define MISTAKE(name, doc) {#name, doc},
#define IGNORED(name, doc, test) {#name, doc},
#include "support/mutants.def"
#undef IGNORED
#undef MISTAKE
  };
  return rows;
}

const Mutant active_mutant = find_active();

void check_mutant() {
  USER_CHECK(wanted().empty() || active_mutant != Mutant::none, "[mutants] POPTORCH_MUTANT is \"",
             wanted(), "\", which is no row of csrc/support/mutants.def. Set it to the name of one "
             "of its ", all_mutants().size(), " rows, or to nothing.");
}

}  // namespace poptorch

#endif
