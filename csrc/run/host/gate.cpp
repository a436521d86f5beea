#include "run/host/gate.h"

namespace poptorch::run {

void Gate::start(int workers) {
  is_closed_ = false;
  is_stopped_ = false;
  running_ = workers;
}

void Gate::leave() {
  {
    const std::scoped_lock lock(mutex_);
    --running_;
  }
  changed_.notify_all();
}

void Gate::enter() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_closed_ || is_stopped_; });
  ++running_;
}

void Gate::stop_here() {
  leave();
  enter();
  if (is_stopped_) throw Stopped();
}

void Gate::alone(const std::function<void()>& fn) {
  {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    changed_.wait(lock, [&] { return running_ == 1; });
  }
  try {
    fn();
  } catch (...) {
    {
      const std::scoped_lock lock(mutex_);
      is_stopped_ = true;  // it stays closed: all come here
    }
    changed_.notify_all();
    throw;
  }
  {
    const std::scoped_lock lock(mutex_);
    is_closed_ = false;
  }
  changed_.notify_all();
}

}  // namespace poptorch::run
