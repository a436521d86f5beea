// What most sources need of the standard library, for the headers that are compiled once
// (setup.py). Every source is given one of them, and still names what it includes: some builds go
// without. Nothing of ours belongs here, or a change of it compiles everything.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>
