#include "python/signal_watch.h"

#include <fcntl.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <array>

namespace py = pybind11;

namespace poptorch::python {

namespace {

struct Pipe {
  pid_t process = 0;
  std::array<int, 2> ends = {-1, -1};
};

// The pipe of this process: a forked child has one of its own. Only the main thread asks.
const Pipe& pipe_of_process() {
  static Pipe made;
  if (made.process != getpid()) {
    made = {getpid(), {-1, -1}};
    if (pipe2(made.ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) made.ends = {-1, -1};
  }
  return made;
}

// Whether something was written since the last time.
bool drain(int fd) {
  std::array<char, 64> bytes{};
  bool found = false;
  while (read(fd, bytes.data(), bytes.size()) > 0) found = true;
  return found;
}

// The descriptor before.
int set_descriptor(int fd) {
  return py::module_::import("signal")
      .attr("set_wakeup_fd")(fd, py::arg("warn_on_full_buffer") = false)
      .cast<int>();
}

void run_handlers() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

SignalWatch::SignalWatch(bool is_long) : is_main_(gettid() == getpid()) {
  if (!is_main_) return;
  run_handlers();
  const Pipe& pipe = pipe_of_process();
  if (!is_long || pipe.ends[1] < 0) return;
  const int before = set_descriptor(pipe.ends[1]);
  if (before < 0) {
    pipe_ = pipe.ends[0];
  } else {
    set_descriptor(before);
  }
}

SignalWatch::~SignalWatch() {
  if (pipe_ < 0) return;
  const py::error_scope kept;  // what a handler raised
  const int present = set_descriptor(-1);
  if (present != pipe_of_process().ends[1]) set_descriptor(present);  // a handler has set it
  drain(pipe_);
}

void SignalWatch::check() const {
  if (!is_main_ || (pipe_ >= 0 && !drain(pipe_))) return;
  const py::gil_scoped_acquire gil;
  run_handlers();
}

}  // namespace poptorch::python
