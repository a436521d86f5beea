// Which optimizations are on. All are, but those that the environment variable POPTORCH_OFF names
// ("fold,flush_denormals"): passes, and the rows of switches.def. For measuring what each is worth,
// and for finding the one that is wrong.
#pragma once

#include <string_view>
#include <vector>

namespace poptorch {

struct Switch {
  std::string_view name, doc;
};

// The rows of switches.def.
const std::vector<Switch>& all_switches();

// Whether the optimization is on in the present settings (support/settings.h). To be read each
// time: what one program does must not depend on the settings of another.
bool is_on(std::string_view name);

}  // namespace poptorch
