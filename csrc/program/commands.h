// What poptorch-run does, by its words behind the name of the command. Each may throw a UsageError,
// or a UserError.
#pragma once

#include <string>
#include <vector>

namespace poptorch::program {

void run_model(const std::vector<std::string>& words);
void train_model(const std::vector<std::string>& words);
void inspect_model(const std::vector<std::string>& words);
void list_needs(const std::vector<std::string>& words);

using Command = void (*)(const std::vector<std::string>& words);
// The command that the first word names, which is then removed; run_model if it names none.
Command take_command(std::vector<std::string>& words);

}  // namespace poptorch::program
