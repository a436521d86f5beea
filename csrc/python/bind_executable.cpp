// poptorch._C: compiling and running. Host memory is handed over as addresses.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <optional>

#include "compile.h"
#include "ir/text.h"
#include "place/place.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "python/bind.h"
#include "schedule/schedule.h"
#include "support/error.h"

namespace poptorch::python {

namespace {

using run::Executable;

void* to_pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

py::tuple sizes_of(const ir::Type& type) { return py::tuple(py::cast(type.sizes)); }

CompileOptions to_options(const py::dict& items) {
  CompileOptions options = CompileOptions::from_environment();
  for (const auto& [key, value] : items) {
    const auto name = key.cast<std::string>();
    if (name == "threads") {
      options.threads = value.cast<int>();
    } else if (name == "replicas") {
      options.replicas = value.cast<int>();
    } else if (name == "dump_folder") {
      options.dump_folder = value.cast<std::string>();
    } else if (name == "reload_ir") {
      options.reload_ir = value.cast<bool>();
    } else if (name == "pass_limit") {
      options.pass_limit = value.cast<int>();
    } else if (name == "poison") {
      options.poison = value.cast<bool>();
    } else if (name == "check_plan") {
      options.check_plan = value.cast<bool>();
    } else if (name == "keep_text") {
      options.keep_text = value.cast<bool>();
    } else {
      throw_user_error(concat("[compile] unknown option \"", name,
                              "\". Options: threads, replicas, dump_folder, reload_ir, "
                              "pass_limit, poison, check_plan, keep_text."));
    }
  }
  USER_CHECK(options.threads >= 1 && options.replicas >= 1, "[compile] threads is ",
             options.threads, " and replicas ", options.replicas, ". Both must be at least 1.");
  return options;
}

std::unique_ptr<Executable> compile_module(ir::Module& module, const py::dict& items,
                                           const std::optional<py::function>& progress) {
  const CompileOptions options = to_options(items);
  Progress call;
  if (progress) {
    call = [&](int, int, std::string_view step) {
      const py::gil_scoped_acquire gil;
      (*progress)(py::str(step.data(), step.size()));
    };
  }
  auto owned = std::make_unique<ir::Module>(std::move(module));
  const py::gil_scoped_release released;
  return compile(std::move(owned), options, call);
}

std::unique_ptr<Executable> assemble_text(const std::string& text, const py::dict& items,
                                          const ir::Module* constants) {
  const CompileOptions options = to_options(items);
  const py::gil_scoped_release released;
  return compile_planned(ir::parse(text, constants), options);
}

void run(Executable& self, const std::vector<uintptr_t>& pointers, int threads) {
  static_assert(sizeof(uintptr_t) == sizeof(void*));
  std::vector<void*> host;
  host.reserve(pointers.size());
  for (const uintptr_t address : pointers) host.push_back(to_pointer(address));
  const py::gil_scoped_release released;
  self.run(host, threads);
}

py::list timestamps(const Executable& self) {
  py::list out;
  for (const auto& [begin, end] : self.timestamps()) out.append(py::make_tuple(begin, end));
  return out;
}

py::dict step_times(const Executable& self) {
  py::dict out;
  for (const auto& [step, ns] : self.reports().step_times_ns) out[py::str(step)] = ns;
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
      .def_property_readonly("bytes", [](const State& s) { return s.type.bytes(); });
}

// The steps one by one, for the golden tests.
void bind_steps(py::module_& module) {
  module.def("place", &place::place, py::arg("module"), "Step 4, in place.");
  module.def("schedule", &schedule::schedule, py::arg("module"), "Step 5, in place.");
  module.def(
      "plan", [](ir::Module& self, int threads) { plan::plan(self, {threads}); },
      py::arg("module"), py::arg("threads") = 1, "Step 6, in place, without the check.");
  module.def("check_plan", &plan::check, py::arg("module"),
             "Fails when two values of a planned module share memory while both live.");
  module.def("memory_report", &plan::memory_report, py::arg("module"),
             "Bytes by category of a planned module.");
}

}  // namespace

void bind_executable(py::module_& module) {
  bind_descriptions(module);
  bind_steps(module);
  py::class_<Executable>(module, "Executable", "A compiled program with its memory.")
      .def("streams", &Executable::streams, "All streams, in the order that `run` takes them.")
      .def("states", &Executable::states)
      .def_property_readonly("replicas", &Executable::replicas)
      .def_property_readonly("device_iterations", &Executable::device_iterations)
      .def("write_state",
           [](Executable& self, const std::string& path, uintptr_t ptr, size_t nbytes,
              std::optional<int> replica) {
             const py::gil_scoped_release released;
             self.write_state(path, to_pointer(ptr), nbytes, replica.value_or(-1));
           },
           py::arg("path"), py::arg("ptr"), py::arg("nbytes"), py::arg("replica") = py::none())
      .def("read_state",
           [](const Executable& self, const std::string& path, uintptr_t ptr, size_t nbytes,
              int replica) {
             const py::gil_scoped_release released;
             self.read_state(path, to_pointer(ptr), nbytes, replica);
           },
           py::arg("path"), py::arg("ptr"), py::arg("nbytes"), py::arg("replica") = 0)
      .def("set_output_mode",
           [](Executable& self, const std::string& stream, const std::string& mode,
              int64_t period) {
             self.set_output_mode(stream, run::output_mode_from_name(mode), period);
           },
           py::arg("stream"), py::arg("mode"), py::arg("period") = 1,
           "What an output returns: all, final, every_n (with its period), sum.")
      .def("host_slices",
           [](const Executable& self, const std::string& stream) {
             return self.host_slices(stream);
           },
           py::arg("stream"), "Slices in the host tensor of a stream.")
      .def("run", &run, py::arg("pointers"), py::arg("threads"),
           "Runs one call on host addresses in the order of `streams()`, without the GIL.")
      .def("ir", [](const Executable& self, const std::string& step) { return self.ir(step); },
           py::arg("step"), "IR text after a step.")
      .def("op_report", [](const Executable& self) { return self.reports().ops; })
      .def("memory_report", [](const Executable& self) { return self.reports().memory_bytes; })
      .def("timestamps", &timestamps)
      .def("step_times", &step_times);
  module.def("compile", &compile_module, py::arg("module"), py::arg("options") = py::dict(),
             py::arg("progress") = py::none(),
             "Compiles a translated module, which is emptied. `progress(step)` is called before "
             "each step.");
  module.def("assemble_text", &assemble_text, py::arg("text"), py::arg("options") = py::dict(),
             py::arg("constants") = nullptr, "Makes an executable of planned IR text.");
}

}  // namespace poptorch::python
