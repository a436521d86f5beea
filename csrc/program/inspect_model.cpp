// The command that shows what a model takes, returns and consists of.
#include <array>
#include <cstdio>
#include <string_view>

#include "program/arguments.h"
#include "program/commands.h"
#include "runtime/json.h"
#include "runtime/program.h"
#include "support/error.h"
#include "support/loading/torch_library.h"

namespace poptorch::program {

namespace {

using runtime::Program;
using runtime::quoted;
using runtime::View;

// As PyTorch calls them, in the order of ir::DType.
constexpr std::array<std::string_view, 10> dtypes = {
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64"};

// The texts between two brackets, one a line.
std::string joined(const std::vector<std::string>& texts, char open, char close) {
  std::string out(1, open);
  for (const std::string& text : texts) out += concat(out.size() > 1 ? "," : "", "\n  ", text);
  return out + (texts.empty() ? "" : "\n ") + close;
}

std::string row(const std::string& name, const View& type, bool has_bytes = false) {
  std::string shape;
  for (const int64_t size : type.shape) shape += concat(shape.empty() ? "" : ", ", size);
  return concat("{\"name\": ", quoted(name), ", \"shape\": [", shape, "], \"dtype\": ",
                quoted(dtypes.at(static_cast<size_t>(type.dtype))),
                has_bytes ? concat(", \"bytes\": ", type.bytes()) : "", "}");
}

std::string counts(const std::map<std::string, int64_t>& values) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : values) entries.push_back(concat(quoted(name), ": ", value));
  return joined(entries, '{', '}');
}

std::string options_of(const CompileOptions& options) {
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  return joined({concat("\"replicas\": ", options.replicas),
                 concat("\"deterministic\": ", boolean(options.deterministic)),
                 concat("\"check_floats\": ", boolean(options.check_floats)),
                 concat("\"record_floats\": ", boolean(options.record_floats))}, '{', '}');
}

void print_json(const Program& program) {
  const Reports& reports = program.executable().reports;
  const Counts& found = program.executable().counts();
  std::map<std::string, int64_t> operators;
  for (const auto& [phase, ops] : found.ops) {
    for (const auto& [op, count] : ops) operators[op] += count;
  }
  std::vector<std::string> inputs, outputs, weights;
  for (const auto& input : program.inputs()) {
    inputs.push_back(row(input.name, {input.dtype, input.shape, nullptr}));
  }
  for (size_t i = 0; i < program.result_count(); ++i) {
    outputs.push_back(row(concat("output", i), program.result_type(i)));
  }
  for (const auto& [name, type] : program.weight_types()) {
    weights.push_back(row(name, type, true));
  }
  const auto line = [](const char* name, const std::string& value, const char* end = ",") {
    std::printf(" \"%s\": %s%s\n", name, value.c_str(), end);
  };
  std::puts("{");
  line("training", program.is_training() ? "true" : "false");
  line("inputs", joined(inputs, '[', ']'));
  line("outputs", joined(outputs, '[', ']'));
  line("weights", joined(weights, '[', ']'));
  line("options", options_of(program.document().options));
  line("memory", counts(found.memory_bytes));
  line("operators", counts(operators));
  line("target", concat("{\"ipus\": ", reports.ipus * program.executable().replicas(),
                        ", \"threads\": ", program.threads(), "}"));
  line("torch", concat("{\"version\": ", quoted(program.torch_version()), ", \"needed\": ",
                       is_torch_loaded() ? "true" : "false", "}"), "");
  std::puts("}");
}

void print_text(const Program& program) {
  std::printf("%s model, %d threads\n", program.is_training() ? "training" : "inference",
              program.threads());
  for (const auto& input : program.inputs()) {
    std::printf("input %s %s\n", input.name.c_str(),
                View{input.dtype, input.shape, nullptr}.text().c_str());
  }
  for (size_t i = 0; i < program.result_count(); ++i) {
    std::printf("output%zu %s\n", i, program.result_type(i).text().c_str());
  }
  std::printf("torch %s\n", is_torch_loaded() ? "needed" : "not needed");
}

}  // namespace

void inspect_model(const std::vector<std::string>& words) {
  const Arguments arguments(words, {{"--program"}, {"--json", Option::none}});
  if (arguments.positional().size() != 1) throw UsageError("inspect takes one file");
  const Program program(arguments.positional()[0], arguments.name("--program"));
  arguments.has("--json") ? print_json(program) : print_text(program);
}

}  // namespace poptorch::program
