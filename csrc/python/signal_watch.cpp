#include "python/signal_watch.h"

#include <Python.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "python/raised.h"
#include "support/process.h"

namespace poptorch::python {

namespace {

struct Pipe {
  int forks = -1;
  std::array<int, 2> ends = {-1, -1};
};

// The pipe of this process: a forked child has one of its own. Only the main thread asks.
const Pipe& pipe_of_process() {
  static Pipe made;
  if (made.forks != fork_count()) {
    made = {fork_count(), {-1, -1}};
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

struct Release {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Release>;

Owned unless_raised(PyObject* object) {
  if (object == nullptr) throw_raised();
  return Owned(object);
}

// The descriptor before.
int set_descriptor(int fd) {
  const Owned module = unless_raised(PyImport_ImportModule("signal"));
  const Owned set = unless_raised(PyObject_GetAttrString(module.get(), "set_wakeup_fd"));
  const Owned given = unless_raised(Py_BuildValue("(i)", fd));
  const Owned named = unless_raised(Py_BuildValue("{s:O}", "warn_on_full_buffer", Py_False));
  const Owned before = unless_raised(PyObject_Call(set.get(), given.get(), named.get()));
  return static_cast<int>(PyLong_AsLong(before.get()));
}

// Holds Python's lock.
class Lock {
 public:
  Lock() : before_(PyGILState_Ensure()) {}
  ~Lock() { PyGILState_Release(before_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  PyGILState_STATE before_;
};

void run_handlers() {
  if (PyErr_CheckSignals() != 0) throw_raised();
}

}  // namespace

SignalWatch::SignalWatch(bool is_long) : is_main_(is_main_thread()) {
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
  PyObject *type, *value, *trace;  // what a handler raised
  PyErr_Fetch(&type, &value, &trace);
  const int present = set_descriptor(-1);
  if (present != pipe_of_process().ends[1]) set_descriptor(present);  // a handler has set it
  drain(pipe_);
  PyErr_Restore(type, value, trace);
}

void SignalWatch::check() const {
  if (!is_main_ || (pipe_ >= 0 && !drain(pipe_))) return;
  const Lock lock;
  run_handlers();
}

}  // namespace poptorch::python
