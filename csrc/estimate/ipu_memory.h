// The memory of each IPU of one replica, without what depends on the target.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "estimate/holdings.h"

namespace poptorch::estimate {

using CategoryBytes = std::array<int64_t, category_count>;

// Bytes by category for each IPU, in the order of their numbers: what is there all the time, and
// the activations at the op of the IPU at which most of them are live.
std::vector<CategoryBytes> ipu_memory(const Holdings& holdings);

// Of the text of a placed program, without the data of its constants. A user error where the text
// breaks a rule: it may be that of a file.
std::vector<CategoryBytes> ipu_memory(std::string_view text);

}  // namespace poptorch::estimate
