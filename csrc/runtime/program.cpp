#include "runtime/program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "ir/constants_file.h"
#include "ir/text.h"
#include "planned.h"
#include "run/elements.h"
#include "runtime/formats.h"
#include "runtime/json.h"
#include "support/error.h"

namespace poptorch::runtime {

namespace {

constexpr const char* random_path = "rng";
constexpr int64_t format_version = 16;  // of archive.py

// Kernels of PyTorch are registered while a program is assembled.
std::mutex& loading() {
  static std::mutex mutex;
  return mutex;
}

[[noreturn]] void throw_damaged_plan(const Archive& archive, const UserError& error) {
  const std::string words = error.what();
  throw_user_error(concat("[load] ", archive.path(), " is damaged: its plan.ir is not what ",
                          "poptorch writes (", words.substr(0, words.find('\n')),
                          "). Export the model again."));
}

std::unique_ptr<Compiled> assemble_file(const Archive& archive, const CompileOptions& options) {
  const std::lock_guard lock(loading());
  std::unique_ptr<ir::Module> constants;
  if (archive.has("constants.safetensors")) {
    constants = ir::unpack_constants(archive["constants.safetensors"], archive.path());
  }
  const std::string text(archive["plan.ir"]);
  Reports known;
  known.texts.emplace_back("plan", text);
  std::unique_ptr<ir::Module> module;
  try {
    module = ir::parse(text, constants.get());
  } catch (const UserError& error) {
    throw_damaged_plan(archive, error);
  }
  try {
    return compile_planned(std::move(module), options, std::move(known));
  } catch (const BrokenText& error) {
    throw_damaged_plan(archive, error);
  }
}

}  // namespace

std::vector<std::string> program_names(const std::string& path) {
  const Archive archive(path);
  const Json manifest = Json::parse(archive["manifest.json"], path + ": manifest.json");
  if (manifest["format"].string() != "poptorch bundle") return {""};
  std::vector<std::string> names;
  for (const auto& [name, facts] : manifest["programs"].object()) names.push_back(name);
  return names;
}

Program::Program(const std::string& path, const std::string& name, int threads)
    : path_(path), archive_(path), threads_(threads > 0 ? threads : default_threads()) {
  read_manifest(name);
  const std::string where = path + ": runtime.json";
  document_ = Document::parse(archive_["runtime.json"], where);
  USER_CHECK(document_.refused.empty(), "[load] ", path, " runs in Python only: ",
             document_.refused, ". Load it with poptorch.load().");
  document_.options.threads = threads_;
  executable_ = assemble_file(archive_, document_.options);
  for (const assemble::State& state : executable_->states()) states_[state.path] = &state;
  check_streams();
  load_weights();
  load_device_state();
  load_random_state();
}

void Program::read_manifest(const std::string& name) {
  const Json manifest = Json::parse(archive_["manifest.json"], path_ + ": manifest.json");
  const std::string& format = manifest["format"].string();
  const bool is_bundle = format == "poptorch bundle";
  USER_CHECK(is_bundle || format == "poptorch executable", "[load] ", path_,
             " is not a compiled model: its format is ", format,
             ". Pass a file that save() or compileAndExport() wrote.");
  USER_CHECK(manifest["format_version"].integer() == format_version, "[load] ", path_,
             " has format_version ", manifest["format_version"].integer(), ", this is ",
             format_version, ". Use the version of poptorch that wrote it, or export the model ",
             "again.");
  torch_version_ = manifest["torch_version"].string();
  USER_CHECK(is_bundle || name.empty(), "[load] ", path_, " has one program without a name, not ",
             name, ". Leave the name out (poptorch-run: --program).");
  if (!is_bundle) {
    is_training_ = manifest["training"].boolean();
    return;
  }
  std::string names;
  const Json* facts = nullptr;
  for (const auto& [known, value] : manifest["programs"].object()) {
    names += concat(names.empty() ? "" : ", ", known);
    if (known == name) facts = &value;
  }
  USER_CHECK(facts != nullptr, "[load] ", path_, " has the programs ", names, ", not ",
             name.empty() ? "one without a name" : name,
             ". Give the name of one of them (poptorch-run: --program NAME).");
  is_training_ = (*facts)["training"].boolean();
  archive_.enter(name);
}

void Program::check_streams() {
  const auto wrong = [&](const std::string& stream, const std::string& what) {
    throw_user_error(concat("[load] ", path_, ": the stream ", stream, " ", what,
                            ". Export the model again."));
  };
  const std::vector<assemble::Stream>& streams = executable_->streams();
  for (size_t i = 0; i < streams.size(); ++i) position_[streams[i].name] = i;
  std::map<std::string, std::pair<ir::DType, int64_t>> known;
  for (const Document::Input& input : document_.inputs) {
    if (!ir::Type{input.dtype, input.shape, {}}.is_sane()) wrong(input.stream, "is too large");
    if (!input.stream.empty()) known[input.stream] = {input.dtype, ir::product(input.shape)};
  }
  for (const auto& [stream, values] : document_.numbers) {
    known[stream] = {ir::DType::f64, static_cast<int64_t>(values.size())};
  }
  for (const Document::Output& output : document_.outputs) {
    const auto at = position_.find(output.stream);
    if (at == position_.end()) wrong(output.stream, "is not one of the program");
    executable_->set_output_mode(output.stream, run::output_mode_from_name(output.mode),
                                 output.period);
    const ir::DType dtype = streams[at->second].type.dtype;
    if (!ir::Type{dtype, output.shape, {}}.is_sane()) wrong(output.stream, "is too large");
    known[output.stream] = {dtype, ir::product(output.shape)};
    results_ += output.is_result ? 1 : 0;
  }
  for (const assemble::Stream& stream : streams) {
    const auto at = known.find(stream.name);
    if (at == known.end()) wrong(stream.name, "has no tensor in runtime.json");
    const int64_t wanted = executable_->host_slices(stream.name) * stream.type.numel();
    if (at->second != std::pair(stream.type.dtype, wanted)) {
      wrong(stream.name, concat("has ", wanted, " elements of ", ir::name_of(stream.type.dtype),
                                ", runtime.json says ", at->second.second, " of ",
                                ir::name_of(at->second.first)));
    }
  }
}

void Program::write_weight(const std::string& path, const View& value) {
  const auto at = states_.find(path);
  if (at == states_.end()) return;  // the program does not use it
  const ir::Type& type = at->second->type;
  USER_CHECK(value.shape == type.sizes && narrowed(value.dtype, type.dtype) == type.dtype,
             "[load] ", path_, ": ", path, " is ", type.text(), " in the program and ",
             value.text(), " in the file. Export the model again.");
  if (value.dtype == type.dtype) {
    const bool is_mapped =
        archive_.contains(value.data) && executable_->map_state(path, value.data, value.bytes());
    if (!is_mapped) executable_->write_state(path, value.data, value.bytes());
    return;
  }
  const Array narrow_value = narrow(value, type.dtype, path);
  executable_->write_state(path, narrow_value.data.data(), narrow_value.data.size());
}

void Program::load_weights() {
  if (archive_.has("weights.safetensors")) {
    stored_ = read_safetensors(archive_["weights.safetensors"], path_);
  }
  const auto stored = [&](const std::string& name) -> const View& {
    const auto value = stored_.find(name);
    USER_CHECK(value != stored_.end(), "[load] ", path_, " has no weight ", name,
               ". Export the model again.");
    return value->second;
  };
  for (const auto& [path, name] : document_.weights) write_weight(path, stored(name));
  for (const auto& [name, member] : document_.state_dict) stored(member);
}

void Program::load_device_state() {
  if (!archive_.has("state.safetensors")) return;
  set_device_state(read_safetensors(archive_["state.safetensors"], path_), path_);
}

void Program::load_random_state() {
  if (!states_.contains(random_path)) return;
  uint64_t seed = document_.seed;
  std::vector<int64_t> counters(static_cast<size_t>(executable_->replicas()), 0);
  if (archive_.has("rng.json")) {
    // The seed has 64 bits, which a number of JSON may lose.
    const std::string_view text = archive_["rng.json"];
    const Json::List words = Json::parse(text, path_ + ": rng.json").list();
    USER_CHECK(words.size() == counters.size() + 1, "[load] ", path_, ": rng.json has ",
               words.size(), " numbers, expected ", counters.size() + 1,
               ". Export the model again.");
    seed = std::strtoull(std::string(text.substr(text.find('[') + 1, 24)).c_str(), nullptr, 10);
    for (size_t i = 0; i < counters.size(); ++i) counters[i] = words[i + 1].integer();
  }
  for (size_t replica = 0; replica < counters.size(); ++replica) {
    const std::array<uint32_t, 4> words = {
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
        static_cast<uint32_t>(replica), static_cast<uint32_t>(counters[replica])};
    executable_->write_state(random_path, words.data(), sizeof words, static_cast<int>(replica));
  }
}

View Program::result_type(size_t number) const {
  const Document::Output& output = document_.outputs.at(number);
  return {executable_->streams()[position_.at(output.stream)].type.dtype, output.shape, nullptr};
}

bool Program::is_number(size_t number) const {
  const std::string& stream = document_.outputs.at(number).stream;
  return executable_->streams()[position_.at(stream)].type.sizes.empty();
}

View Program::as_given(const View& tensor, size_t number, std::vector<Array>& kept) const {
  const Document::Input& input = document_.inputs[number];
  USER_CHECK(tensor.shape == input.shape && narrowed(tensor.dtype, input.dtype) == input.dtype,
             "[arguments] ", input.name, ": expected ",
             View{input.dtype, input.shape, nullptr}.text(), " but got ", tensor.text(),
             ". The program is compiled for this type and shape. Convert the tensor.");
  if (tensor.dtype == input.dtype) return tensor;
  kept.push_back(narrow(tensor, input.dtype, input.name));
  return kept.back().view();
}

std::vector<Array> Program::run(const std::vector<View>& tensors, run::Deadline& deadline) {
  const size_t count = document_.inputs.size();
  USER_CHECK(tensors.size() == count, "[arguments] the program takes ", count, " tensors, got ",
             tensors.size(), ". Pass one for each tensor of forward.");
  std::vector<void*> host(executable_->streams().size(), nullptr);
  std::vector<Array> kept, outputs;
  kept.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const View tensor = as_given(tensors[i], i, kept);
    const auto at = position_.find(document_.inputs[i].stream);
    if (at != position_.end()) host[at->second] = const_cast<std::byte*>(tensor.data);
  }
  for (auto& [stream, values] : document_.numbers) {
    const auto at = position_.find(stream);
    if (at != position_.end()) host[at->second] = values.data();
  }
  for (size_t i = 0; i < document_.outputs.size(); ++i) {
    const View type = result_type(i);
    outputs.emplace_back(type.dtype, type.shape);
    host[position_.at(document_.outputs[i].stream)] = outputs.back().data.data();
  }
  executable_->run(host, threads_, {}, deadline);
  outputs.resize(results_);
  return outputs;
}

}  // namespace poptorch::runtime
