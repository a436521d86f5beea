// Items in parts of one size; the last part may be shorter.
#pragma once

#include <cstdint>

namespace poptorch {

// How many parts of a size n items are.
constexpr int64_t ceil_div(int64_t n, int64_t size) { return (n + size - 1) / size; }

// How many items these parts hold when the last one is filled up.
constexpr int64_t round_up(int64_t n, int64_t size) { return ceil_div(n, size) * size; }

}  // namespace poptorch
