// What a placed program's tasks are, what passes between them, and the work of each: what schedules
// and timelines are shown and computed from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace poptorch::tasks {

struct TaskRow {
  std::string name;  // of its graph
  std::string part;  // forward, backward or both
  int64_t ipu = 0;
  int64_t stage = 0;
  std::optional<int64_t> phase;
  int64_t offset = 0;
  double flops = 0;  // of one micro-batch, as far as they are known
  double recomputed_flops = 0;  // those of them that a forward task has, too
  int64_t bytes_in = 0;   // from the host, of one micro-batch
  int64_t bytes_out = 0;  // to the host
};

// What a task moves from or to the host in each micro-batch, or reads ahead from streaming memory.
struct TransferRow {
  std::string task;
  bool is_host = true;    // false: weights that the IO tiles load from streaming memory
  bool is_output = false;
  std::string overlap;  // with what it may happen: none, loop (over micro-batches), step (also the
                        // steps before and after)
  int64_t bytes = 0;
};

// Values that pass from one task to another in the same memory.
struct EdgeRow {
  std::string source;
  std::string target;
  int64_t bytes = 0;  // of one micro-batch
  int64_t tensors = 0;
  int64_t depth = 1;  // for how many micro-batches there is room
  bool is_streaming = false;
  int64_t stored_bytes = 0;  // of `bytes`: a value with several targets is stored once
  bool loads_by_io_tiles = false;
  bool stores_by_io_tiles = false;
};

// What an IPU does once in each step, outside of the tasks.
struct StepRow {
  int64_t ipu = 0;
  std::string kind;  // update or all_reduce
  double flops = 0;
};

struct Report {
  std::string graph;     // that is cut into the tasks; empty: none is
  std::string schedule;  // name of the schedule; sequential where there is one task after the other
  std::string sync;      // as of the op strategy
  int64_t micro_batches = 1;
  std::vector<TaskRow> tasks;  // in their order in a round
  std::vector<EdgeRow> edges;
  std::vector<TransferRow> transfers;  // at most one for each task, direction and overlap
  std::vector<StepRow> steps;
};

// FLOPs of one micro-batch by the part of the step, as far as they are known.
struct BlockRow {
  std::string name;  // empty: ops before the first block
  double forward = 0;
  double backward = 0;
};

// Whether a task loads a weight from streaming memory by the IO tiles: a transfer of its own.
bool is_read_ahead(const ir::Op& op);

// Of a placed program. A program of one stage is not cut: its forward and its backward ops are a
// task each.
Report report(const ir::Module& module);

// Of its text, without the data of its constants. A user error where the text breaks a rule: it may
// be that of a file.
Report report(std::string_view text);

// Of the text before the step place: a row for each of the blocks (tasks/blocks.h).
std::vector<BlockRow> block_report(std::string_view text);

}  // namespace poptorch::tasks
