// Element-wise functions on strips: n elements of each operand with a constant step.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace poptorch::simd {

// Results are rounded to what this format can hold, and stay f32.
enum class Rounding : uint8_t { none, f16, bf16 };

struct Strip {
  void* out;             // step 1
  const void* in[3];
  int64_t step[3];       // elements; 0: one value for all
  int64_t n;
  const double* params;  // numbers that attributes give, in the order of the row
  Rounding rounding = Rounding::none;  // only functions that say so heed it
};

using StripFn = void (*)(const Strip&);

struct NamedStrip {
  std::string_view name;
  StripFn run = nullptr;
  int picoseconds = 0;  // rough time for an element, to size the parts of threads
  bool rounds = false;  // heeds Strip::rounding
};

// Operands with other steps than 0 and 1 are copied into blocks of this many elements.
constexpr int64_t strip_block = 256;

inline const NamedStrip* find(std::span<const NamedStrip> table, std::string_view name) {
  for (const NamedStrip& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace poptorch::simd
