// What the program knows about the ops that its instructions come from: for messages, profiles and
// reports.
#pragma once

#include <string>
#include <unordered_map>

#include "assemble/program.h"
#include "ir/graph.h"

namespace poptorch::assemble {

// Whether nothing runs for an op: it names memory, or says something to the compiler.
bool is_silent(const ir::Op& op);

// The algorithm that computes the op; empty where there is only one.
std::string algorithm_of(const ir::Op& op);

// Adds to `sources` and `labels` of a program. Label 0 is the empty one.
class Sources {
 public:
  explicit Sources(Program& program) : program_(program) { label({}); }

  // The index of a label; equal labels have one index.
  int label(const ir::SourceLocation& location);
  int source(const ir::Op& op, int label);

 private:
  Program& program_;
  std::unordered_map<std::string, int> labels_;
};

}  // namespace poptorch::assemble
