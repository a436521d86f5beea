// Does what each line says, words with tabs between them, and prints one line of what came of it.
// An error is an ordinary answer. `model FILE PROGRAM` loads a file by poptorch/runtime.h, runs it
// on zeros and reads its weights. All others are command lines of poptorch-run.
#include <poptorch/runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "program/commands.h"
#include "support/files.h"

namespace runtime = poptorch::runtime;
namespace program = poptorch::program;

namespace {

size_t item_bytes(runtime::DataType dtype) {
  constexpr size_t bytes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return bytes[static_cast<size_t>(dtype)];
}

std::string run_model(const std::string& path, const std::string& name) {
  auto loaded = runtime::Model::load(path, 1, name);
  if (!loaded) return "error: " + loaded.error();
  runtime::Model model = std::move(loaded.value());
  std::vector<runtime::Tensor> inputs;
  for (const runtime::TensorInfo& info : model.inputs()) {
    size_t bytes = item_bytes(info.dtype);
    for (const int64_t size : info.shape) bytes *= static_cast<size_t>(size);
    inputs.push_back({info.dtype, info.shape, std::vector<std::byte>(bytes)});
  }
  const auto results = model.run(inputs);
  const auto weights = model.weights();
  if (!results) return "error: " + results.error();
  if (!weights) return "error: " + weights.error();
  return "done";
}

std::string answer_to(std::vector<std::string> words) {
  if (words[0] == "model") return run_model(words[1], words.size() > 2 ? words[2] : "");
  try {
    program::take_command(words)(words);
    return "done";
  } catch (const std::exception& error) {
    return std::string("error: ") + error.what();
  }
}

}  // namespace

int main() {
  // What commands print is no answer.
  std::FILE* const answers = fdopen(dup(STDOUT_FILENO), "w");
  if (answers == nullptr || std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string answer = answer_to(poptorch::split(line, '\t'));
    const auto is_control = [](unsigned char letter) { return std::iscntrl(letter) != 0; };
    std::replace_if(answer.begin(), answer.end(), is_control, ' ');
    std::fprintf(answers, "%s\n", answer.c_str());
    std::fflush(answers);
  }
}
