// Which optimizations are on. All are, but those that the environment variable POPTORCH_OFF names
// ("fold,flush_denormals"): passes, and the rows of switches.def. For measuring what each is worth,
// and for finding the one that is wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace poptorch {

struct Switch {
  std::string_view name, doc;
};

// The rows of switches.def.
const std::vector<Switch>& all_switches();

// Names in POPTORCH_OFF, as they stand there.
std::vector<std::string> off_names();

// Whether the optimization is on. Reads the environment: ask when a kernel is prepared or a pass
// begins, not while a program runs.
bool is_on(std::string_view name);

}  // namespace poptorch
