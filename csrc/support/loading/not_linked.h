// What a runner for chosen programs does not have (support/loading/at_load.h).
#pragma once

#include <string_view>

namespace poptorch {

// A user error in a build for chosen programs, which may lack what another program needs.
void check_is_linked(std::string_view kind, std::string_view name);

}  // namespace poptorch
