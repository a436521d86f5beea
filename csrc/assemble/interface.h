// The interface of a program to the host: its streams and states, by name.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "assemble/program.h"
#include "ir/graph.h"
#include "schedule/states.h"

namespace poptorch::assemble {

// Adds to `streams` and `states` of a program.
class Interface {
 public:
  explicit Interface(Program& program) : program_(program) {}

  // What the graph `preprocess` reads and assigns: the states that it assigns are not added.
  void set_preprocessed(schedule::StateUse use) { preprocessed_ = std::move(use); }

  // The number of the op's stream, which is added at its first op. `steps`: slices of one replica
  // in one device iteration.
  int stream_of(const ir::Op& op, const ir::Value& value, int64_t steps);

  // A `state` or an `assign`. `shareable`: paths of states that may share the host's pages.
  void add_state(const ir::Op& op, const std::set<std::string>& shareable);

  // Inputs before outputs, each by name; states by path. Instructions are renumbered.
  void sort_by_name();

 private:
  Program& program_;
  std::unordered_map<std::string, int> streams_;
  std::unordered_map<std::string, size_t> states_;
  schedule::StateUse preprocessed_;
};

}  // namespace poptorch::assemble
