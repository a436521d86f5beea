#include "support/switches.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace poptorch {

const std::vector<Switch>& all_switches() {
  static const std::vector<Switch> switches = {
#define SWITCH(name, doc) {#name, doc},
#include "support/switches.def"
#undef SWITCH
  };
  return switches;
}

std::vector<std::string> off_names() {
  std::vector<std::string> names;
  const char* variable = std::getenv("POPTORCH_OFF");
  std::istringstream text(variable == nullptr ? "" : variable);
  for (std::string name; std::getline(text, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

bool is_on(std::string_view name) {
  const std::vector<std::string> off = off_names();
  return std::find(off.begin(), off.end(), name) == off.end();
}

}  // namespace poptorch
