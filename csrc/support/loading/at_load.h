// What registers itself when the program is loaded, by name: "kernel.relu", "ops.norm".
//
//   AT_LOAD("kernel.relu") { register_kernel({"relu", relu}); }
//
// at namespace scope of a .cpp file. In a file linked for chosen programs (`make runner PROGRAM=`)
// only what these need is run, and the linker leaves out the rest: the block has the name as its
// symbol, which the file that setup.py generates calls.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace poptorch {

#ifdef POPTORCH_CHOSEN
constexpr bool is_chosen_build = true;
#else
constexpr bool is_chosen_build = false;
#endif

// Records what programs look up from now on, whether or not it is there.
void record_needs();
// "kernel." and "relu": called wherever something registered is looked up.
void note_need(std::string_view kind, std::string_view name);
// What was recorded.
std::set<std::string> recorded_needs();

}  // namespace poptorch

#define POPTORCH_JOIN_(a, b) a##b
#define POPTORCH_JOIN(a, b) POPTORCH_JOIN_(a, b)

#ifdef POPTORCH_CHOSEN
// Without vectors: their constants hold addresses of several blocks, and would keep all of them.
#define POPTORCH_AT_LOAD_(name, function)                                    \
  __asm__(".globl \"poptorch." name "\"\n.hidden \"poptorch." name "\"");      \
  [[gnu::used, gnu::optimize("no-tree-vectorize")]] static void function()     \
      __asm__("poptorch." name);                                               \
  static void function()
#else
#define POPTORCH_AT_LOAD_(name, function)                                      \
  static void function();                                                      \
  [[maybe_unused]] static const bool POPTORCH_JOIN(function, _done) = (function(), true); \
  static void function()
#endif
#define AT_LOAD(name) POPTORCH_AT_LOAD_(name, POPTORCH_JOIN(at_load_, __COUNTER__))
