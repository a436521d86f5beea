// The command that lists what a runner for some programs must have, for `make runner PROGRAM=FILE`.
#include <cstdio>
#include <string>
#include <vector>

#include "program/arguments.h"
#include "program/commands.h"
#include "runtime/program.h"
#include "support/error.h"
#include "support/loading/at_load.h"

namespace poptorch::program {

namespace {

using runtime::Array;
using runtime::View;

// Some products are prepared while a program runs. What it says of zeros does not matter.
void run_with_zeros(runtime::Program& program) {
  std::vector<Array> zeros;
  for (const auto& input : program.inputs()) zeros.emplace_back(input.dtype, input.shape);
  std::vector<View> views;
  for (const Array& array : zeros) views.push_back(array.view());
  try {
    program.run(views);
  } catch (const UserError&) {
  }
}

}  // namespace

void list_needs(const std::vector<std::string>& words) {
  const Arguments arguments(words, {});
  if (arguments.positional().empty()) throw UsageError("needs takes files of compiled models");
  record_needs();
  for (const std::string& path : arguments.positional()) {
    for (const std::string& name : runtime::program_names(path)) {
      runtime::Program program(path, name);
      run_with_zeros(program);
    }
  }
  for (const std::string& name : recorded_needs()) std::puts(name.c_str());
}

}  // namespace poptorch::program
