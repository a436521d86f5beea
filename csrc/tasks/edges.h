// What passes between the tasks of a graph that is cut into tasks: which task makes each value,
// which tasks take it, and which op holds it meanwhile.
//
//   %x1 = task {body=@micro.s0, ipu=0, part="forward", stage=0}
//   %x1.ipu1 = ipu_copy %x1 {bytes=1024, from=0, ipu=1, stage=1}
//   %y = task %x1.ipu1 {body=@micro.s1, ipu=1, part="both", stage=1}
//
// is one edge, from task 0 to task 1, which the copy holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace poptorch::tasks {

struct Edge {
  ir::Op* op = nullptr;         // an ipu_copy, stash or remote_store; nullptr: read from the task
  size_t source = 0;            // numbers of tasks, in the order of the text
  std::vector<size_t> targets;  // rising, at least one
  int64_t bytes = 0;            // of one micro-batch
  bool is_streaming = false;    // the values are in streaming memory
};

struct TaskEdges {
  std::vector<ir::Op*> tasks;  // in the order of the text, which is their order in a round
  std::vector<Edge> edges;     // in the order of the text
};

bool has_tasks(const ir::Graph& graph);

// A value that crosses several ops has an edge for each: a stash of a copied value is filled when
// the first task that reads the copy runs, the second of two copies when the task at the place in
// between does. A remote_load holds nothing: it serves the task that runs next. Values that no
// task makes (inputs, constants, states) are not in the list.
TaskEdges edges_of(const ir::Graph& graph);

// The loop over micro-batches that the graph is the body of: one with the attribute `pipeline`;
// nullptr where the graph runs once in a step.
const ir::Op* pipeline_of(const ir::Module& module, const ir::Graph& graph);

}  // namespace poptorch::tasks
