// The command that runs a model on arrays.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "program/arguments.h"
#include "program/commands.h"
#include "runtime/formats.h"
#include "runtime/program.h"
#include "support/files.h"

namespace poptorch::program {

namespace {

using runtime::Array;
using runtime::View;

double seconds_of(const auto& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print_times(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    return 1e3 * seconds[static_cast<size_t>(part * static_cast<double>(seconds.size() - 1))];
  };
  std::printf("%zu runs: median %.3f ms, 90%% %.3f ms, 99%% %.3f ms\n", seconds.size(), at(0.5),
              at(0.9), at(0.99));
}

}  // namespace

void run_model(const std::vector<std::string>& words) {
  const Arguments arguments(words, {{"--outdir"}, {"--program"}, {"--repeat"}, {"--threads"},
                                    {"--timeout"}});
  const std::vector<std::string>& paths = arguments.positional();
  if (paths.empty()) throw UsageError("the file of a compiled model is missing");
  const std::string folder = arguments.one("--outdir");
  const int64_t repeat = arguments.count("--repeat", 1);
  const auto threads = static_cast<int>(arguments.count("--threads", 0));
  runtime::Program program(paths[0], arguments.name("--program"), threads);
  if (arguments.has("--timeout")) program.set_timeout(arguments.number("--timeout"));
  std::vector<Array> arrays;
  std::vector<View> views;
  for (size_t i = 1; i < paths.size(); ++i) arrays.push_back(runtime::read_npy(paths[i]));
  for (const Array& array : arrays) views.push_back(array.view());

  std::vector<Array> results;
  std::vector<double> seconds;
  for (int64_t i = 0; i < repeat; ++i) {
    seconds.push_back(seconds_of([&] { results = program.run(views); }));
  }
  make_folders(folder);
  for (size_t i = 0; i < results.size(); ++i) {
    runtime::write_file(concat(folder, "/output", i, ".npy"), write_npy(results[i].view()));
  }
  if (repeat > 1) print_times(std::move(seconds));
}

}  // namespace poptorch::program
