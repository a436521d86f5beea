// Which memory of the arena a run usually touches.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "assemble/program.h"
#include "ir/graph.h"

namespace poptorch::assemble {

using Directs = std::unordered_map<const ir::Value*, int>;  // into Program::directs

// The extents of all values and states, in order and apart from each other. Left out are streamed
// values in host memory, shareable states, and scratch memory: kernels may use less of it than they
// allocate (MKL's packed matrices take a twentieth).
std::vector<Extent> find_resident(const ir::Module& module, const Directs& directs,
                                  const std::set<std::string>& shareable);

// The extents of scratch memory, in order and apart from each other.
std::vector<Extent> find_scratch(const ir::Module& module);

}  // namespace poptorch::assemble
