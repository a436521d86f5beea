#include "tasks/check.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::tasks {

namespace {

// A pair of tasks between which values pass, and the least room that one of them has.
struct Path {
  size_t source;
  size_t target;
  int64_t room;
};

struct Task {
  const ir::Op* op;
  int64_t offset;
  int64_t ipu;
  bool begins_late;  // in the second half of a round
  bool ends_late;
  std::vector<size_t> from;  // paths
  std::vector<size_t> to;
};

bool carries(const ir::Op& op) { return ops::is_move(op) || op.name == ir::op::stash; }

class Pipeline {
 public:
  Pipeline(const ir::Graph& graph, int64_t count) : count_(count) {
    std::map<const ir::Op*, size_t> numbers;
    for (const auto& op : graph.ops) {
      if (carries(*op)) check_bytes(*op);
      if (op->name != ir::op::task) continue;
      numbers[op.get()] = tasks_.size();
      add_task(*op);
    }
    std::map<std::pair<size_t, size_t>, int64_t> rooms;
    for (const Task& task : tasks_) {
      for (const ir::Value* operand : task.op->operands) {
        if (operand != nullptr) add_operand(*operand->op, numbers, numbers.at(task.op), rooms);
      }
    }
    for (const auto& [pair, room] : rooms) add_path(pair.first, pair.second, room);
    check_offsets();
  }

  // Whether each round has what it reads and room for what it makes. Where all tasks run, one round
  // is like the next: m micro-batches more than the largest offset show nothing new.
  void check_rounds() {
    const int64_t last = last_offset();
    const int64_t count = std::min(count_, last + 2);
    std::vector<int64_t> held(paths_.size(), 0);
    for (int64_t round = 0; round < last + count; ++round) {
      std::vector<size_t> first, second;
      for (size_t i = 0; i < tasks_.size(); ++i) {
        const int64_t number = round - tasks_[i].offset;
        if (number < 0 || number >= count) continue;
        (tasks_[i].begins_late ? second : first).push_back(i);
      }
      std::vector<size_t> open = run_half(first, {}, round, held);
      open = run_half(second, std::move(open), round, held);
      INTERNAL_CHECK(open.empty(), "[schedule] a round does not end");
    }
  }

  // Whether workers that wait for operands and for room always come to an end.
  void check_waits() const {
    std::vector<Worker> workers;
    for (const auto& [ipu, numbers] : by_ipu()) workers.emplace_back(*this, numbers);
    std::vector<int64_t> begun(tasks_.size(), 0), ended(tasks_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (Worker& worker : workers) moved = worker.run(begun, ended) || moved;
    }
    for (size_t i = 0; i < tasks_.size(); ++i) {
      INTERNAL_CHECK(ended[i] == count_, "[schedule] task ", name(i), " waits for ever: it ran ",
                     ended[i], " of ", count_, " times");
    }
  }

 private:
  // One IPU: its tasks round by round.
  class Worker {
   public:
    Worker(const Pipeline& pipeline, std::vector<size_t> numbers)
        : pipeline_(pipeline), numbers_(std::move(numbers)) {
      const auto& tasks = pipeline_.tasks_;
      for (const size_t i : numbers_) last_ = std::max(last_, tasks[i].offset + pipeline_.count_);
    }

    // Goes on until it must wait; whether anything was done.
    bool run(std::vector<int64_t>& begun, std::vector<int64_t>& ended) {
      bool moved = false;
      for (; round_ < last_; step()) {
        const size_t i = numbers_[at_];
        const Task& task = pipeline_.tasks_[i];
        const int64_t number = round_ - task.offset;
        if (number < 0 || number >= pipeline_.count_) continue;
        if (!is_begun_) {
          if (!pipeline_.has_operands(task, number, ended)) return moved;
          INTERNAL_CHECK(begun[i] == number, "[schedule] task ", pipeline_.name(i),
                         " leaves micro-batch ", begun[i], " out");
          ++begun[i];
          is_begun_ = moved = true;
        }
        if (!pipeline_.has_room(task, number, begun)) return moved;
        ++ended[i];
        is_begun_ = false;
      }
      return moved;
    }

   private:
    void step() {
      if (++at_ < numbers_.size()) return;
      at_ = 0;
      ++round_;
    }

    const Pipeline& pipeline_;
    std::vector<size_t> numbers_;
    int64_t last_ = 0, round_ = 0;
    size_t at_ = 0;
    bool is_begun_ = false;
  };

  static void check_bytes(const ir::Op& op) {
    const int64_t bytes = op.attrs.get_int(ir::attr::bytes);
    INTERNAL_CHECK(bytes == op.result()->type.bytes(), "[schedule] `", op.text(), "` has bytes=",
                   bytes, ", its type has ", op.result()->type.bytes());
  }

  void add_task(const ir::Op& op) {
    const std::string_view part = op.attrs.get_string(ir::attr::part);
    tasks_.push_back({&op, op.attrs.get_int(ir::attr::offset, 0), op.attrs.get_int(ir::attr::ipu),
                      part == "backward", part != "forward", {}, {}});
  }

  // Follows an operand back to the task that makes it, if one does.
  static void add_operand(const ir::Op& from, const std::map<const ir::Op*, size_t>& numbers,
                          size_t target, std::map<std::pair<size_t, size_t>, int64_t>& rooms) {
    int64_t room = 0;
    const ir::Op* op = &from;
    for (const ir::Op* reader = nullptr; carries(*op); reader = op, op = op->operand(0)->op) {
      const bool is_on_its_way =
          op->name == ir::op::remote_load ||
          (op->name == ir::op::remote_store && reader != nullptr && reader->name == ir::op::stash);
      if (!is_on_its_way) room += depth_of(*op);
    }
    if (op->name != ir::op::task) return;
    room = std::max(room, int64_t{1});
    const auto [known, is_new] = rooms.emplace(std::pair(numbers.at(op), target), room);
    if (!is_new) known->second = std::min(known->second, room);
  }

  static int64_t depth_of(const ir::Op& op) {
    const int64_t depth = op.attrs.get_int(ir::attr::depth, 0);
    INTERNAL_CHECK(depth >= 1, "[schedule] `", op.text(), "` has depth ", depth,
                   "; it holds at least one micro-batch");
    return depth;
  }

  void add_path(size_t source, size_t target, int64_t room) {
    tasks_[source].to.push_back(paths_.size());
    tasks_[target].from.push_back(paths_.size());
    paths_.push_back({source, target, room});
  }

  void check_offsets() const {
    const int64_t most = count_ + 2 * static_cast<int64_t>(tasks_.size());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const int64_t offset = tasks_[i].offset;
      INTERNAL_CHECK(offset >= 0 && offset <= most, "[schedule] task ", name(i), " has offset ",
                     offset, ", which is not one of 0 to ", most);
    }
  }

  int64_t last_offset() const {
    int64_t last = 0;
    for (const Task& task : tasks_) last = std::max(last, task.offset);
    return last;
  }

  std::map<int64_t, std::vector<size_t>> by_ipu() const {
    std::map<int64_t, std::vector<size_t>> found;
    for (size_t i = 0; i < tasks_.size(); ++i) found[tasks_[i].ipu].push_back(i);
    return found;
  }

  const std::string& name(size_t i) const {
    return tasks_[i].op->attrs.get_graph(ir::attr::body);
  }

  // Tasks that can take their operands do, then those give their results, until all have run.
  // `open`: tasks that have begun. Returns those that end in the next half.
  std::vector<size_t> run_half(std::vector<size_t> waiting, std::vector<size_t> open,
                               int64_t round, std::vector<int64_t>& held) const {
    std::vector<size_t> next;
    while (!waiting.empty() || !open.empty()) {
      std::vector<size_t> later;
      std::map<int64_t, bool> is_busy;
      for (const size_t i : open) is_busy[tasks_[i].ipu] = true;
      for (const size_t i : waiting) {
        // An IPU runs one task after the other.
        const bool is_free = !is_busy[tasks_[i].ipu];
        is_busy[tasks_[i].ipu] = true;
        if (!is_free || !take(i, held)) {
          later.push_back(i);
        } else {
          (tasks_[i].ends_late && !tasks_[i].begins_late ? next : open).push_back(i);
        }
      }
      if (open.empty() && later.size() == waiting.size()) fail_empty(later[0], round, held);
      for (const size_t i : open) give(i, round, held);
      open.clear();
      waiting = std::move(later);
    }
    return next;
  }

  bool take(size_t i, std::vector<int64_t>& held) const {
    const auto& from = tasks_[i].from;
    if (std::any_of(from.begin(), from.end(), [&](size_t path) { return held[path] == 0; })) {
      return false;
    }
    for (const size_t path : from) --held[path];
    return true;
  }

  void give(size_t i, int64_t round, std::vector<int64_t>& held) const {
    for (const size_t path : tasks_[i].to) {
      ++held[path];
      INTERNAL_CHECK(held[path] <= paths_[path].room, "[schedule] in round ", round, " ",
                     held[path], " micro-batches are between task ", name(paths_[path].source),
                     " and task ", name(paths_[path].target), ", which have room for ",
                     paths_[path].room);
    }
  }

  [[noreturn]] void fail_empty(size_t i, int64_t round, const std::vector<int64_t>& held) const {
    for (const size_t path : tasks_[i].from) {
      INTERNAL_CHECK(held[path] > 0, "[schedule] in round ", round, " task ", name(i),
                     " reads what task ", name(paths_[path].source), " has not made");
    }
    throw_internal_error(__FILE__, __LINE__, "held", "a task waits for nothing");
  }

  bool has_operands(const Task& task, int64_t number, const std::vector<int64_t>& ended) const {
    return std::all_of(task.from.begin(), task.from.end(),
                       [&](size_t path) { return ended[paths_[path].source] > number; });
  }

  bool has_room(const Task& task, int64_t number, const std::vector<int64_t>& begun) const {
    return std::all_of(task.to.begin(), task.to.end(), [&](size_t path) {
      return begun[paths_[path].target] + paths_[path].room > number;
    });
  }

  int64_t count_;
  std::vector<Task> tasks_;
  std::vector<Path> paths_;
};

// The micro-batches of a graph: how often the loop around it runs.
int64_t rounds_of(const ir::Module& module, const std::string& graph) {
  for (const auto& around : module.graphs) {
    for (const auto& op : around->ops) {
      const bool runs_it = op->name == ir::op::loop && op->attrs.has(ir::attr::pipeline) &&
                           op->attrs.get_graph(ir::attr::body) == graph;
      if (runs_it) return op->attrs.get_int(ir::attr::count);
    }
  }
  return 1;
}

}  // namespace

void check(const ir::Module& module) {
  for (const auto& graph : module.graphs) {
    const bool is_cut = std::any_of(graph->ops.begin(), graph->ops.end(), [](const auto& op) {
      return op->name == ir::op::task;
    });
    if (!is_cut) continue;
    Pipeline pipeline(*graph, rounds_of(module, graph->name));
    pipeline.check_rounds();
    pipeline.check_waits();
  }
}

}  // namespace poptorch::tasks
