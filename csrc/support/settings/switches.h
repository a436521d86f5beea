// Which optimizations are on. All are, but those that the environment variable POPTORCH_OFF names
// ("fold,flush_denormals"): passes, and the rows of switches.def. For measuring what each is worth,
// and for finding the one that is wrong.
#pragma once

#include <string_view>
#include <vector>

namespace poptorch {

// What else turns an optimization off: options of a compilation (CompileOptions in compile.h).
enum class OffFor {
  nothing,
  checks,       // check_floats and record_floats: it fuses, moves or overwrites operations
  recording,    // record_floats: it looks at arguments where they are copied to
  determinism,  // deterministic
};

struct Switch {
  std::string_view name;
  OffFor off_for;
  std::string_view doc;
};

// The rows of switches.def.
const std::vector<Switch>& all_switches();

// Whether the optimization is on in the present settings (support/settings/settings.h). To be read
// each time: what one program does must not depend on the settings of another.
bool is_on(std::string_view name);

}  // namespace poptorch
