#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "program/arguments.h"
#include "program/commands.h"
#include "runtime/formats.h"
#include "runtime/program.h"
#include "support/error.h"

namespace poptorch::program {

namespace {

using runtime::Array;
using runtime::Document;
using runtime::Program;
using runtime::View;

// Batches of one argument, one after the other on dimension 0.
struct Batches {
  Array array;
  int64_t count = 0;

  View batch(int64_t number, const ir::Dims& shape) const {
    View view{array.dtype, shape, array.data.data()};
    view.data += static_cast<size_t>(number % count) * view.bytes();
    return view;
  }
};

Batches read_batches(const std::string& path, const Document::Input& input) {
  Batches batches{runtime::read_npy(path)};
  // A number has an array of one dimension: one element for each batch.
  ir::Dims one = input.shape.empty() ? ir::Dims{1} : input.shape, all = batches.array.shape;
  const bool has_rank = one.size() == all.size() && one[0] > 0;
  batches.count = has_rank ? all[0] / one[0] : 0;
  const bool is_whole = batches.count > 0 && all[0] == batches.count * one[0];
  if (has_rank) one[0] = all[0];
  USER_CHECK(is_whole && one == all, "[arguments] ", path, " is ", batches.array.view().text(),
             ", expected batches of ", View{input.dtype, input.shape, nullptr}.text(),
             " one after the other. Save them as one array.");
  return batches;
}

std::vector<Batches> read_data(const std::vector<std::string>& paths, const Program& program) {
  USER_CHECK(paths.size() == program.inputs().size(), "[arguments] the program takes ",
             program.inputs().size(), " tensors, got ", paths.size(),
             " files. Pass one for each tensor of forward.");
  std::vector<Batches> data;
  for (size_t i = 0; i < paths.size(); ++i) {
    data.push_back(read_batches(paths[i], program.inputs()[i]));
    USER_CHECK(data[i].count == data[0].count, "[arguments] ", paths[i], " has ", data[i].count,
               " batches, ", paths[0], " has ", data[0].count, ". Give both the same number.");
  }
  return data;
}

// The first result that is one number for each micro-batch; without one, the first.
size_t loss_of(const Program& program) {
  for (size_t i = 0; i < program.result_count(); ++i) {
    if (program.is_number(i)) return i;
  }
  return 0;
}

double number_at(const Array& array, int64_t at) {
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, array.data.data() + static_cast<size_t>(at) * sizeof value, sizeof value);
    return value;
  };
  switch (array.dtype) {
    case ir::DType::f32: return read(float());
    case ir::DType::f64: return read(double());
    case ir::DType::bf16: {
      const uint32_t bits = static_cast<uint32_t>(read(uint16_t())) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case ir::DType::f16: return static_cast<double>(read(_Float16()));
    default: return static_cast<double>(read(int32_t()));
  }
}

// As Python prints Tensor.item(): the fewest digits that are read as the same double.
void print_loss(const Array& loss) {
  std::string line;
  for (int64_t i = 0; i < loss.view().numel(); ++i) {
    std::array<char, 32> text = {};
    const auto end = std::to_chars(text.begin(), text.end(), number_at(loss, i)).ptr;
    line += concat(line.empty() ? "" : " ", std::string_view(text.data(), end));
  }
  std::puts(line.c_str());
}

// Weights of a part of the model would leave the other part as the file has it.
void check_has_all(const std::map<std::string, View>& tensors, const Program& program,
                   const std::string& path) {
  std::set<std::string> members;  // tied weights need one of their names
  for (const auto& [name, member] : program.document().state_dict) {
    if (tensors.contains(name)) members.insert(member);
  }
  for (const auto& [name, member] : program.document().state_dict) {
    USER_CHECK(members.contains(member), "[load] ", path, " does not have ", name,
               ", which is in the state_dict of the model. Give all weights of the model.");
  }
}

void load_weights(Program& program, const std::string& path) {
  const std::string bytes = runtime::read_file(path);
  const std::map<std::string, View> tensors = runtime::read_safetensors(bytes, path);
  program.set_weights(tensors, path);
  check_has_all(tensors, program, path);
}

void load_state(Program& program, const std::string& path) {
  const std::string bytes = runtime::read_file(path);
  const std::map<std::string, View> tensors = runtime::read_safetensors(bytes, path);
  program.set_device_state(tensors, path);
  for (const auto& [name, array] : program.device_state()) {
    USER_CHECK(tensors.contains(name), "[load] ", path, " does not have the state ", name,
               ", which the program has. Give the state of the same program.");
  }
}

void save(const std::string& path, const std::map<std::string, Array>& tensors) {
  std::vector<std::pair<std::string, View>> views;
  for (const auto& [name, array] : tensors) views.emplace_back(name, array.view());
  runtime::write_file(path, runtime::write_safetensors(views));
}

}  // namespace

void train_model(const std::vector<std::string>& words) {
  const Arguments arguments(words, {{"--data", Option::many}, {"--steps"}, {"--out"}, {"--weights"},
                                    {"--state"}, {"--out-state"}, {"--program"}, {"--threads"}});
  if (arguments.positional().size() != 1) throw UsageError("train takes one file");
  arguments.all("--data");
  arguments.one("--steps");
  runtime::check_folder_of(arguments.one("--out"));
  if (arguments.has("--out-state")) runtime::check_folder_of(arguments.one("--out-state"));
  Program program(arguments.positional()[0], arguments.name("--program"),
                  static_cast<int>(arguments.count("--threads", 0)));
  USER_CHECK(program.is_training(), "[train] ", arguments.positional()[0],
             " is a model of inferenceModel. Export one of trainingModel.");
  if (arguments.has("--weights")) load_weights(program, arguments.one("--weights"));
  if (arguments.has("--state")) load_state(program, arguments.one("--state"));
  const std::vector<Batches> data = read_data(arguments.all("--data"), program);
  const size_t loss = loss_of(program);
  const int64_t steps = arguments.count("--steps", 1);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<View> batch;
    for (size_t i = 0; i < data.size(); ++i) {
      batch.push_back(data[i].batch(step, program.inputs()[i].shape));
    }
    const std::vector<Array> results = program.run(batch);
    if (!results.empty()) print_loss(results[loss]);
  }
  save(arguments.one("--out"), program.weights());
  if (arguments.has("--out-state")) save(arguments.one("--out-state"), program.device_state());
}

}  // namespace poptorch::program
