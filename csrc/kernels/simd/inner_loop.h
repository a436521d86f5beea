// Element-wise functions as inner loops: n elements of each operand with a constant step.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "support/loading/at_load.h"

namespace poptorch::simd {

// Results are rounded to what this format can hold, and stay f32.
enum class Rounding : uint8_t { none, f16, bf16 };

struct InnerLoop {
  void* out;             // step 1
  const void* in[3];
  int64_t step[3];       // elements; 0: one value for all
  int64_t n;
  const double* params;  // numbers that attributes give, in the order of the row
  Rounding rounding = Rounding::none;  // only functions that say so apply it
};

using InnerLoopFn = void (*)(const InnerLoop&);

struct NamedLoop {
  std::string_view name;
  InnerLoopFn run = nullptr;
  int picoseconds = 0;  // rough time for an element, to size the parts of threads
  bool rounds = false;  // applies InnerLoop::rounding
};

// Operands with other steps than 0 and 1 are copied into blocks of this many elements.
constexpr int64_t loop_block = 256;

// A table of f32 functions. In a build for chosen programs they enter it by themselves.
#ifdef POPTORCH_CHOSEN
#define NAMED_LOOPS(table) inline constinit std::vector<NamedLoop> table;
#define NAMED_LOOP(table, name, ...) \
  AT_LOAD("function." #name) { table.push_back({#name, __VA_ARGS__}); }
#define END_NAMED_LOOPS
#else
#define NAMED_LOOPS(table) inline constexpr NamedLoop table[] = {
#define NAMED_LOOP(table, name, ...) {#name, __VA_ARGS__},
#define END_NAMED_LOOPS };
#endif

inline const NamedLoop* find(std::span<const NamedLoop> table, std::string_view name) {
  for (const NamedLoop& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace poptorch::simd
