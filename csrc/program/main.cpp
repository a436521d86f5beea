// poptorch-run: runs and trains compiled models without Python.
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "program/arguments.h"
#include "program/commands.h"

namespace {

constexpr const char* usage =
    "usage: poptorch-run FILE x.npy y.npy ... --outdir DIR [--program NAME] [--repeat N]\n"
    "                    [--threads N] [--timeout S]\n"
    "       poptorch-run train FILE --data x.npy y.npy ... --steps N --out weights.safetensors\n"
    "                    [--weights FILE] [--state FILE] [--out-state FILE] [--program NAME]\n"
    "                    [--threads N]\n"
    "       poptorch-run inspect FILE [--program NAME] [--json]\n"
    "\n"
    "Runs a model that compileAndExport() or save() wrote. Arrays are in the order of forward's\n"
    "tensors; results become output0.npy, output1.npy, ... in DIR. --program names one of the\n"
    "programs that save_bundle() wrote. A run that takes more than --timeout seconds is an error.\n"
    "train: each array holds batches one after the other. It prints the loss of each step and\n"
    "writes the state_dict. --weights and --state (the optimizer's and the random state, as\n"
    "--out-state wrote it) continue a training.\n";

// Where Python looks for what was measured on this machine, also in an empty environment.
void find_home() {
  const passwd* const user = std::getenv("HOME") == nullptr ? getpwuid(getuid()) : nullptr;
  if (user != nullptr) setenv("HOME", user->pw_dir, 0);
}

// On one line.
int fail(std::string words, int status) {
  std::replace(words.begin(), words.end(), '\n', ' ');
  std::fprintf(stderr, "poptorch-run: %s\n", words.c_str());
  return status;
}

}  // namespace

int main(int count, char** values) {
  namespace program = poptorch::program;
  std::vector<std::string> words(values + 1, values + count);
  const auto asks_for = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (words.empty() || asks_for("--help") || asks_for("-h")) {
    std::fputs(usage, words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  const program::Command command = program::take_command(words);
  find_home();
  try {
    command(words);
    return 0;
  } catch (const program::UsageError& error) {
    return fail(std::string(error.what()) + ". See poptorch-run --help.", 2);
  } catch (const std::bad_alloc&) {
    return fail("[run] the system has no memory left. Use a smaller model or batch.", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
