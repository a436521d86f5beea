// poptorch._C: compiling and running. Host memory is handed over as addresses.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "compile.h"
#include "ir/text.h"
#include "lower/cpu/pipeline.h"
#include "place/place.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "python/bind.h"
#include "python/signal_watch.h"
#include "python/torch_tensors.h"
#include "run/memory/file_map.h"
#include "schedule/schedule.h"
#include "support/error.h"
#include "tasks/cut.h"

namespace poptorch::python {

namespace {

using Executable = Compiled;

void* to_pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

py::tuple sizes_of(const ir::Type& type) { return py::tuple(py::cast(type.sizes)); }

using SetOption = void (*)(CompileOptions&, const py::handle&);

template <auto member>
void set_option(CompileOptions& options, const py::handle& value) {
  using Value = std::remove_reference_t<decltype(options.*member)>;
  options.*member = value.cast<Value>();
}

constexpr std::pair<std::string_view, SetOption> option_setters[] = {
    {"threads", set_option<&CompileOptions::threads>},
    {"replicas", set_option<&CompileOptions::replicas>},
    {"dump_folder", set_option<&CompileOptions::dump_folder>},
    {"reload_ir", set_option<&CompileOptions::reload_ir>},
    {"pass_limit", set_option<&CompileOptions::pass_limit>},
    {"poison", set_option<&CompileOptions::poison>},
    {"deterministic", set_option<&CompileOptions::deterministic>},
    {"check_floats", set_option<&CompileOptions::check_floats>},
    {"record_floats", set_option<&CompileOptions::record_floats>},
    {"check_plan", set_option<&CompileOptions::check_plan>},
    {"cut_tasks", set_option<&CompileOptions::cut_tasks>},
    {"keep_text", set_option<&CompileOptions::keep_text>},
    {"max_ipus", set_option<&CompileOptions::max_ipus>},
    {"power_of_two_ipus", set_option<&CompileOptions::power_of_two_ipus>},
    {"input_group_size", set_option<&CompileOptions::input_group_size>},
    {"orthogonal_input_groups", set_option<&CompileOptions::orthogonal_input_groups>},
    {"host", set_option<&CompileOptions::host>},
};

[[noreturn]] void unknown_option(const std::string& name) {
  std::string names;
  for (const auto& [known, set] : option_setters) {
    names += concat(names.empty() ? "" : ", ", known);
  }
  throw_user_error(concat("[compile] unknown option \"", name, "\". Options: ", names, "."));
}

CompileOptions to_options(const py::dict& items) {
  CompileOptions options = CompileOptions::from_environment();
  for (const auto& [key, value] : items) {
    const auto name = key.cast<std::string>();
    const auto row = std::find_if(std::begin(option_setters), std::end(option_setters),
                                  [&](const auto& setter) { return setter.first == name; });
    if (row == std::end(option_setters)) unknown_option(name);
    row->second(options, value);
  }
  USER_CHECK(options.threads >= 1 && options.replicas >= 1, "[compile] threads is ",
             options.threads, " and replicas ", options.replicas, ". Both must be at least 1.");
  USER_CHECK(options.input_group_size >= 1 && options.replicas % options.input_group_size == 0,
             "[inputReplicaGrouping] groups of ", options.input_group_size, " do not divide ",
             options.replicas, " replicas. Choose a divisor of the replication factor.");
  return options;
}

Progress to_progress(const std::optional<py::function>& progress) {
  if (!progress) return {};
  return [&](int, int, std::string_view step) {
    const py::gil_scoped_acquire gil;
    (*progress)(py::str(step.data(), step.size()));
  };
}

std::string place_module(ir::Module& module, const py::dict& items,
                         const std::optional<py::function>& progress) {
  const CompileOptions options = to_options(items);
  const Progress call = to_progress(progress);
  ir::Module owned = std::move(module);
  const py::gil_scoped_release released;
  return placed_text(owned, options, call);
}

std::unique_ptr<Executable> compile_module(ir::Module& module, const py::dict& items,
                                           const std::optional<py::function>& progress,
                                           const std::optional<py::function>& placed) {
  const CompileOptions options = to_options(items);
  const Progress call = to_progress(progress);
  Placed call_placed;
  if (placed) {
    call_placed = [&](int64_t ipus) {
      const py::gil_scoped_acquire gil;
      (*placed)(ipus);
    };
  }
  auto owned = std::make_unique<ir::Module>(std::move(module));
  const py::gil_scoped_release released;
  return compile(std::move(owned), options, call, call_placed);
}

// `Share` may be const.
template <typename Share, typename Fn>
void for_each_field(Share& share, const Fn& fn) {
  fn("ipu", share.spot.ipu);
  fn("stage", share.spot.stage);
  fn("phase", share.spot.phase);
  fn("blocks", share.blocks);
  fn("modules", share.modules);
  fn("parameters", share.parameters);
  fn("parameter_elements", share.parameter_elements);
  fn("parameter_bytes", share.parameter_bytes);
  fn("ops", share.ops);
  fn("copied_bytes", share.copied_bytes);
}

py::list shares_of(const std::vector<place::Share>& shares) {
  py::list rows;
  for (const place::Share& share : shares) {
    py::dict row;
    for_each_field(share, [&](const char* name, const auto& field) { row[name] = field; });
    rows.append(row);
  }
  return rows;
}

place::Share share_from(const py::dict& row) {
  place::Share share;
  for_each_field(share, [&](const char* name, auto& field) {
    field = row[name].cast<std::decay_t<decltype(field)>>();
  });
  return share;
}

std::unique_ptr<Executable> assemble_text(
    std::string text, const py::dict& items, const ir::Module* constants,
    std::vector<std::pair<std::string, std::string>> texts, const std::vector<py::dict>& shares,
    bool is_proved) {
  const CompileOptions options = to_options(items);
  Reports known;
  known.texts = std::move(texts);
  for (const py::dict& row : shares) known.shares.push_back(share_from(row));
  const py::gil_scoped_release released;
  std::unique_ptr<ir::Module> module = ir::parse(text, constants);
  known.texts.emplace_back("plan", std::move(text));
  return compile_planned(std::move(module), options, std::move(known), is_proved);
}

void run(Executable& self, const std::vector<uintptr_t>& pointers, int threads) {
  static_assert(sizeof(uintptr_t) == sizeof(void*));
  std::vector<void*> host;
  host.reserve(pointers.size());
  for (const uintptr_t address : pointers) host.push_back(to_pointer(address));
  const SignalWatch watch(self.is_long());
  const py::gil_scoped_release released;
  self.run(host, threads, [&] { watch.check(); });
}

// `storage` is the address of the torch storage that the bytes belong to.
bool share_state(Executable& self, const std::string& path, uintptr_t ptr, size_t nbytes,
                 uintptr_t storage) {
  if (!self.can_share(path)) return false;
  auto* begin = static_cast<std::byte*>(to_pointer(ptr));
  const bool is_mapped = run::FileMap::find({begin, begin + nbytes}) != nullptr;
  // With the GIL: it changes the storage.
  if (!is_mapped && !allow_sharing(storage)) return false;
  const py::gil_scoped_release released;
  return self.share_state(path, begin, nbytes);
}

py::list to_pairs(const std::vector<std::array<int64_t, 2>>& times) {
  py::list out;
  for (const auto& [begin, end] : times) out.append(py::make_tuple(begin, end));
  return out;
}

// What `fn` gives, called without the GIL: it waits for a run, which may wait for the GIL.
auto without_gil(const auto& fn) {
  const py::gil_scoped_release released;
  return fn();
}

py::list timestamps(const Executable& self) {
  return to_pairs(without_gil([&] { return self.timestamps(); }));
}

py::list stream_times(const Executable& self, const std::string& stream) {
  return to_pairs(without_gil([&] { return self.stream_times(stream); }));
}

// One row for each op that ran; those that never ran are left out.
py::list profile(const Executable& self) {
  const assemble::Program& program = self.engine().program();
  const auto spent = without_gil([&] { return self.spent(); });
  py::list rows;
  for (size_t i = 0; i < spent.size(); ++i) {
    if (spent[i].runs == 0) continue;
    const assemble::Source& source = program.sources[i];
    py::dict row;
    row["op"] = source.op;
    row["phase"] = source.phase;
    row["types"] = source.types;
    row["algorithm"] = source.algorithm;
    row["place"] = program.labels[static_cast<size_t>(source.label)];
    row["runs"] = spent[i].runs;
    row["ns"] = spent[i].ns;
    row["flops"] = whole(source.work.flops);  // of one run
    row["bytes"] = whole(source.work.bytes);
    rows.append(row);
  }
  return rows;
}

py::object first_non_finite(const Executable& self) {
  const auto found = without_gil([&] { return self.first_non_finite(); });
  if (!found) return py::none();
  py::dict row;
  row["what"] = found->what;
  row["condition"] = found->condition;
  row["element"] = found->element;
  row["phase"] = found->phase;
  row["place"] = found->place;
  row["device_iteration"] = found->iteration;
  row["micro_batch"] = found->micro_batch;
  row["loop_iterations"] = py::tuple(py::cast(found->loops));
  row["replica"] = found->replica;
  row["step"] = found->step_text(self.engine().program(), self.replicas());
  return row;
}

std::vector<std::string> steps(const Executable& self) {
  std::vector<std::string> names;
  for (const auto& [name, text] : self.reports.texts) names.push_back(name);
  return names;
}

py::list shares(const Executable& self) { return shares_of(self.reports.shares); }

py::dict host_form(const Executable& self) {
  const run::HostPlan& host = self.reports.host;
  py::dict row;
  row["form"] = std::string(run::name_of(host.form));
  row["workers"] = host.workers;
  row["reason"] = host.reason;
  return row;
}

py::dict step_times(const Executable& self) {
  py::dict out;
  for (const auto& [step, ns] : self.reports.step_times_ns) out[py::str(step)] = ns;
  return out;
}

void bind_descriptions(py::module_& module) {
  using assemble::State;
  using assemble::Stream;
  py::class_<Stream>(module, "Stream", "A host stream of an executable.")
      .def_readonly("name", &Stream::name)
      .def_readonly("is_input", &Stream::is_input)
      .def_readonly("repeat", &Stream::repeat, "Whether every step reads the same single slice.")
      .def_property_readonly("dtype", [](const Stream& s) { return ir::name_of(s.type.dtype); })
      .def_property_readonly("sizes", [](const Stream& s) { return sizes_of(s.type); })
      .def_property_readonly("slice_bytes", [](const Stream& s) { return s.type.bytes(); });
  py::class_<State>(module, "State", "A named state of an executable.")
      .def_readonly("path", &State::path)
      .def_readonly("role", &State::role)
      .def_property_readonly("dtype", [](const State& s) { return ir::name_of(s.type.dtype); })
      .def_property_readonly("sizes", [](const State& s) { return sizes_of(s.type); })
      .def_property_readonly("bytes", [](const State& s) { return s.type.bytes(); })
      .def_property_readonly("shard_bytes",
                             [](const State& s) { return s.shard > 0 ? s.own_bytes() : 0; });
}

// The steps one by one, for the golden tests.
void bind_steps(py::module_& module) {
  module.def("place", [](ir::Module& self) { return shares_of(place::place(self)); },
             py::arg("module"), "Step 4, in place; returns a row for each stage.");
  module.def("cut_tasks", &tasks::cut, py::arg("module"),
             "The end of step 4, in place: tasks in the graph of a micro-batch.");
  module.def("inline_tasks", &tasks::inline_tasks, py::arg("module"),
             "The beginning of step 5, in place: takes back what cut_tasks did.");
  module.def("lower", [](ir::Module& self) { lower::cpu::lower(self); }, py::arg("module"),
             "Step 5, in place.");
  module.def("schedule", [](ir::Module& module) { schedule::schedule(module); },
             py::arg("module"), "Step 6, in place.");
  module.def(
      "plan", [](ir::Module& self, int threads) { plan::plan(self, {threads}); },
      py::arg("module"), py::arg("threads") = 1, "Step 7, in place, without the check.");
  module.def("check_plan", &plan::check, py::arg("module"),
             "Fails when two values of a planned module share memory while both are live.");
  module.def("memory_report", &plan::memory_report, py::arg("module"),
             "Bytes by category of a planned module.");
}

// What is known of a program and of its last run.
void bind_reports(py::class_<Executable>& executable) {
  executable
      .def("ir", [](const Executable& self, const std::string& step) { return self.ir(step); },
           py::arg("step"), "IR text after a step.")
      .def("steps", &steps, "The steps with a text, in their order.")
      .def("op_report",
           [](const Executable& self, bool algorithms) {
             return algorithms ? self.counts().algorithms : self.counts().ops;
           },
           py::arg("algorithms") = false)
      .def("shares", &shares, "What runs where: a row for each stage.")
      .def("memory_report", [](const Executable& self) { return self.counts().memory_bytes; })
      .def("timestamps", &timestamps)
      .def("stream_times", &stream_times, py::arg("stream"))
      .def("constants", [](const Executable& self) { return py::bytes(self.constants()); })
      .def("set_profiling", &Executable::set_profiling, py::arg("is_on"),
           py::call_guard<py::gil_scoped_release>())
      .def("set_delay", &Executable::set_delay, py::arg("most_us"), py::arg("seed"),
           py::call_guard<py::gil_scoped_release>(),
           "Each worker waits at most so many microseconds before each part: for tests.")
      .def("profile", &profile)
      .def("first_non_finite", &first_non_finite,
           "The first value of the last run that is not finite, as a dict, or None.")
      .def_property_readonly("is_recording_floats", &Executable::is_recording_floats)
      .def("host_form", &host_form, "How replicas and micro-batches run, and why: a dict.")
      .def("step_times", &step_times);
}

void bind_states(py::class_<Executable>& type) {
  type
      .def("write_state",
           [](Executable& self, const std::string& path, uintptr_t ptr, size_t nbytes,
              std::optional<int> replica) {
             const py::gil_scoped_release released;
             self.write_state(path, to_pointer(ptr), nbytes, replica.value_or(-1));
           },
           py::arg("path"), py::arg("ptr"), py::arg("nbytes"), py::arg("replica") = py::none())
      .def("share_state", &share_state, py::arg("path"), py::arg("ptr"), py::arg("nbytes"),
           py::arg("storage"))
      .def("clear_state",
           [](Executable& self, const std::string& path) {
             const py::gil_scoped_release released;
             self.clear_state(path);
           },
           py::arg("path"))
      .def("read_state",
           [](const Executable& self, const std::string& path, uintptr_t ptr, size_t nbytes,
              int replica) {
             const py::gil_scoped_release released;
             self.read_state(path, to_pointer(ptr), nbytes, replica);
           },
           py::arg("path"), py::arg("ptr"), py::arg("nbytes"), py::arg("replica") = 0);
}

void bind_memory(py::class_<Executable>& type) {
  type.def("release", &Executable::release, py::arg("elsewhere"),
           py::call_guard<py::gil_scoped_release>())
      .def("restore", &Executable::restore, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("has_memory", [](const Executable& self) {
        return without_gil([&] { return self.has_memory(); });
      })
      .def("has_state",
           [](const Executable& self, const std::string& path) {
             return without_gil([&] { return self.has_state(path); });
           },
           py::arg("path"))
      .def("is_same_in_replicas",
           [](const Executable& self, const std::string& path) {
             return without_gil([&] { return self.is_same_in_replicas(path); });
           },
           py::arg("path"));
}

}  // namespace

void bind_executable(py::module_& module) {
  bind_descriptions(module);
  bind_steps(module);
  py::class_<Executable> type(module, "Executable", "A compiled program with its memory.");
  bind_states(type);
  bind_memory(type);
  type.def("streams", &Executable::streams, "All streams, in the order that `run` takes them.")
      .def("states", &Executable::states)
      .def_property_readonly("replicas", &Executable::replicas)
      .def_property_readonly("device_iterations", &Executable::device_iterations)
      .def_property_readonly("runs_begun", &Executable::runs_begun)
      .def_property_readonly("ipus", [](const Executable& self) { return self.reports.ipus; },
                             "IPUs of one replica.")
      .def("set_output_mode",
           [](Executable& self, const std::string& stream, const std::string& mode,
              int64_t period) {
             without_gil([&] {
               self.set_output_mode(stream, run::output_mode_from_name(mode), period);
             });
           },
           py::arg("stream"), py::arg("mode"), py::arg("period") = 1,
           "What an output returns: all, final, every_n (with its period), sum, none.")
      .def("set_timeout", &Executable::set_timeout, py::arg("seconds"),
           "The most time that a call waits for others and runs.")
      .def("host_slices",
           [](const Executable& self, const std::string& stream) {
             return without_gil([&] { return self.host_slices(stream); });
           },
           py::arg("stream"), "Slices in the host tensor of a stream.")
      .def("run", &run, py::arg("pointers"), py::arg("threads"),
           "Runs one call on host addresses in the order of `streams()`, without the GIL. What "
           "the handler of a signal raises ends it between two iterations of a loop.");
  bind_reports(type);
  module.def("compile", &compile_module, py::arg("module"), py::arg("options") = py::dict(),
             py::arg("progress") = py::none(), py::arg("placed") = py::none(),
             "Compiles a translated module, which is emptied. `progress(step)` is called before "
             "each step, `placed(ipus)` after place, with the IPUs of one replica.");
  module.def("placed_text", &place_module, py::arg("module"), py::arg("options") = py::dict(),
             py::arg("progress") = py::none(),
             "As `compile`, up to place: the text, and no executable.");
  module.def("assemble_text", &assemble_text, py::arg("text"), py::arg("options") = py::dict(),
             py::arg("constants") = nullptr,
             py::arg("texts") = std::vector<std::pair<std::string, std::string>>(),
             py::arg("shares") = std::vector<py::dict>(), py::arg("is_proved") = false,
             "Makes an executable of planned IR text; of one that is proved without checking its "
             "rules and its plan.");
}

}  // namespace poptorch::python
