#include "support/settings/switches.h"

#include "support/settings/settings.h"

namespace poptorch {

const std::vector<Switch>& all_switches() {
  static const std::vector<Switch> switches = {
#define SWITCH(name, off_for, doc) {#name, OffFor::off_for, doc},
#include "support/settings/switches.def"
#undef SWITCH
  };
  return switches;
}

bool is_on(std::string_view name) { return settings().is_on(name); }

}  // namespace poptorch
