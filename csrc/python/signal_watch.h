// Signals that Python has handlers for, noticed during a run without Python's lock.
#pragma once

namespace poptorch::python {

// Polled by a run in the main thread. In others Python runs no handlers, and nothing is done. Made
// and destroyed with the lock held, in one thread.
class SignalWatch {
 public:
  // Runs the handlers of what came before; what they raise is thrown. If `is_long`, Python's own C
  // handler notes signals in a pipe meanwhile, its wakeup descriptor, so that checks need no lock.
  // Where the program has such a descriptor of its own that one stays, and each check takes the
  // lock, as in runs that are not long: setting the descriptor takes system calls.
  explicit SignalWatch(bool is_long);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Without the lock: runs the handlers of what came meanwhile; what they raise is thrown.
  void check() const;

 private:
  bool is_main_;
  int pipe_ = -1;  // the end to read
};

}  // namespace poptorch::python
