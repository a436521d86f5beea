// The last step of a compilation, which is the only one of a program that was planned elsewhere. No
// pass is reached from here, so a runner for chosen programs has none.
#pragma once

#include <memory>

#include "assemble/assemble.h"
#include "compile.h"
#include "support/error.h"

namespace poptorch {

// What `compile_planned` throws for a text that breaks a rule, which the words name.
struct BrokenText : UserError {
  using UserError::UserError;
};

// The options with all that they turn off.
CompileOptions complete(CompileOptions options);
// Names in POPTORCH_OFF that turn nothing off are a mistake.
void check_switches();

assemble::AssembleOptions assemble_options(const CompileOptions& options);

std::unique_ptr<Compiled> make_executable(const ir::Module& module, assemble::Program program,
                                          const CompileOptions& options, Reports reports);

}  // namespace poptorch
