#include "program/commands.h"

namespace poptorch::program {

Command take_command(std::vector<std::string>& words) {
  Command command = run_model;
  if (words[0] == "train") command = train_model;
  if (words[0] == "inspect") command = inspect_model;
  if (words[0] == "needs") command = list_needs;
  if (command != run_model) words.erase(words.begin());
  return command;
}

}  // namespace poptorch::program
