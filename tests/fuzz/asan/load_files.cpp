// Loads each file whose path it reads, with its program on the same line, runs it on zeros, reads
// its weights, and prints one line of what came of it. An error is an ordinary answer.
#include <poptorch/runtime.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

namespace runtime = poptorch::runtime;

namespace {

size_t item_bytes(runtime::DataType dtype) {
  constexpr size_t bytes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return bytes[static_cast<size_t>(dtype)];
}

std::string answer_to(const std::string& path, const std::string& program) {
  auto loaded = runtime::Model::load(path, 1, program);
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
  return "loaded";
}

}  // namespace

int main() {
  for (std::string path, program; std::getline(std::cin, path) && std::getline(std::cin, program);) {
    std::string line = answer_to(path, program);
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::puts(line.c_str());
    std::fflush(stdout);
  }
}
