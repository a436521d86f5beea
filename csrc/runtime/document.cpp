#include "runtime/document.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "runtime/json.h"
#include "support/error.h"

namespace poptorch::runtime {

namespace {

ir::Dims dims_of(const Json& list) {
  ir::Dims sizes;
  for (const Json& size : list.list()) sizes.push_back(size.integer());
  return sizes;
}

using SetOption = void (*)(CompileOptions&, const Json&);

template <auto member>
void set_option(CompileOptions& options, const Json& value) {
  using Value = std::remove_reference_t<decltype(options.*member)>;
  if constexpr (std::is_same_v<Value, bool>) {
    options.*member = value.boolean();
  } else {
    options.*member = static_cast<Value>(value.integer());
  }
}

// Those that poptorch/_runtime/settings.py passes, but for the threads.
constexpr std::array<std::pair<std::string_view, SetOption>, 8> setters = {{
    {"replicas", set_option<&CompileOptions::replicas>},
    {"deterministic", set_option<&CompileOptions::deterministic>},
    {"check_floats", set_option<&CompileOptions::check_floats>},
    {"record_floats", set_option<&CompileOptions::record_floats>},
    {"max_ipus", set_option<&CompileOptions::max_ipus>},
    {"power_of_two_ipus", set_option<&CompileOptions::power_of_two_ipus>},
    {"input_group_size", set_option<&CompileOptions::input_group_size>},
    {"orthogonal_input_groups", set_option<&CompileOptions::orthogonal_input_groups>},
}};

constexpr int most_ipus = 64;  // of poptorch/_device/device.py

CompileOptions options_of(const Json& values, const std::string& where) {
  CompileOptions options = CompileOptions::from_environment();
  for (const auto& [name, value] : values.object()) {
    const auto row = std::find_if(setters.begin(), setters.end(),
                                  [&](const auto& setter) { return setter.first == name; });
    USER_CHECK(row != setters.end(), "[load] ", where, " has the option ", name,
               ", which this version does not know. Use the version that wrote the file.");
    row->second(options, value);
  }
  USER_CHECK(options.replicas >= 1 && options.input_group_size >= 1 &&
                 options.replicas % options.input_group_size == 0,
             "[load] ", where, " has ", options.replicas, " replicas in groups of ",
             options.input_group_size, ". Export the model again.");
  // Each takes memory before any other check of the file could find out.
  USER_CHECK(options.replicas <= most_ipus, "[load] ", where, " has ", options.replicas,
             " replicas, a system has at most ", most_ipus, " IPUs. Export the model again.");
  return options;
}

Document::Input input_of(const Json& entry) {
  const Json& stream = entry["stream"];
  return {entry["name"].string(), stream.is_null() ? "" : stream.string(),
          ir::dtype_from_name(entry["dtype"].string()), dims_of(entry["shape"])};
}

Document::Output output_of(const Json& entry) {
  return {entry["stream"].string(), entry["mode"].string(), entry["is_result"].boolean(),
          entry["period"].integer(), dims_of(entry["shape"])};
}

}  // namespace

Document Document::parse(std::string_view text, const std::string& where) {
  const Json data = Json::parse(text, where);
  Document out;
  if (!data["refused"].is_null()) out.refused = data["refused"].string();
  out.options = options_of(data["options"], where);
  for (const Json& entry : data["inputs"].list()) out.inputs.push_back(input_of(entry));
  for (const Json& entry : data["outputs"].list()) out.outputs.push_back(output_of(entry));
  for (const auto& [stream, values] : data["numbers"].object()) {
    for (const Json& value : values.list()) out.numbers[stream].push_back(value.number());
  }
  for (const auto& [path, name] : data["weights"].object()) out.weights[path] = name.string();
  for (const Json& path : data["updated"].list()) out.updated.push_back(path.string());
  for (const auto& [name, member] : data["state_dict"].object()) {
    out.state_dict.emplace_back(name, member.string());
  }
  const std::string& seed = data["seed"].string();  // of 64 bits, which a double does not hold
  std::from_chars(seed.data(), seed.data() + seed.size(), out.seed);
  return out;
}

}  // namespace poptorch::runtime
