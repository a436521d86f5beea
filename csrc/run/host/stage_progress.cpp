#include "run/host/stage_progress.h"

namespace poptorch::run {

void StageProgress::start() {
  for (Lane& lane : lanes_) lane.position = 0;
}

void StageProgress::step(size_t lane) {
  {
    const std::scoped_lock lock(mutex_);
    ++lanes_[lane].position;
  }
  lanes_[lane].changed.notify_all();
}

void StageProgress::wake() {
  const std::scoped_lock lock(mutex_);
  for (Lane& lane : lanes_) lane.changed.notify_all();
}

}  // namespace poptorch::run
