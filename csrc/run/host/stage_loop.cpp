#include "run/host/stage_loop.h"

#include <algorithm>
#include <map>
#include <set>

#include "support/error.h"

namespace poptorch::run {

namespace {

using assemble::Instruction;

class Finder {
 public:
  Finder(const assemble::Program& program, const SideLoop& side, const tasks::Report& report)
      : body_(program.blocks[static_cast<size_t>(side.block)].instructions),
        side_(side),
        report_(report) {}

  FoundStages run() {
    add_tasks();
    if (problem_.empty()) add_ranges();
    if (problem_.empty()) add_edges();
    if (problem_.empty()) add_shared();
    if (!problem_.empty()) return {std::nullopt, problem_};
    for (size_t i = 0; i < loop_.tasks.size(); ++i) loop_.order.push_back(i);
    std::stable_sort(loop_.order.begin(), loop_.order.end(), [&](size_t a, size_t b) {
      return loop_.tasks[a].offset > loop_.tasks[b].offset;  // of the earlier round
    });
    // A round begins when the one so many before has ended.
    loop_.lanes = std::clamp<int64_t>(loop_.tasks.back().offset, 1, report_.micro_batches);
    return {loop_, ""};
  }

 private:
  void add_tasks() {
    std::set<int64_t> ipus;
    for (const tasks::TaskRow& row : report_.tasks) ipus.insert(row.ipu);
    loop_.ipus = ipus.size();
    int64_t before = 0;
    for (const tasks::TaskRow& row : report_.tasks) {
      const auto worker = std::distance(ipus.begin(), ipus.find(row.ipu));
      loop_.tasks.push_back({0, 0, static_cast<size_t>(worker), row.offset});
      if (row.offset < before) {
        problem_ = concat("task ", row.name, " has offset ", row.offset,
                          ", a task before it has offset ", before);
      }
      before = std::max(before, row.offset);
    }
  }

  // Where the addresses of streams are set, and copies that plan has put in, have no task. They
  // are in that of the next instruction.
  void add_ranges() {
    size_t task = 0;
    for (size_t i = 0; i < body_.size(); ++i) {
      if (body_[i].kind == Instruction::Kind::bind || body_[i].task < 0) continue;
      const auto here = static_cast<size_t>(body_[i].task);
      INTERNAL_CHECK(here >= task && here < loop_.tasks.size(), "an instruction of task ", here,
                     " is behind one of task ", task, " of ", loop_.tasks.size());
      skip_to(here, task);
      loop_.tasks[here].end = i + 1;
    }
    skip_to(loop_.tasks.size() - 1, task);
    loop_.tasks.back().end = body_.size();
  }

  // Tasks between, if any, have no instructions.
  void skip_to(size_t here, size_t& task) {
    for (; task < here; ++task) {
      loop_.tasks[task + 1].begin = loop_.tasks[task + 1].end = loop_.tasks[task].end;
    }
  }

  // What holds values between two tasks has room for as many rounds as its depth says. A task that
  // begins takes its values out.
  void add_edges() {
    std::map<std::string, size_t> numbers;
    for (size_t i = 0; i < report_.tasks.size(); ++i) numbers[report_.tasks[i].name] = i;
    for (const tasks::EdgeRow& edge : report_.edges) {
      StageLoop::Task& source = loop_.tasks[numbers.at(edge.source)];
      const size_t target = numbers.at(edge.target);
      const int64_t rounds = loop_.tasks[target].offset - source.offset;
      if (edge.depth < std::min(rounds, report_.micro_batches)) {
        problem_ = concat("there is room for ", edge.depth, " micro-batches between tasks ",
                          edge.source, " and ", edge.target, ", which are ", rounds,
                          " rounds apart");
      }
      source.waits.push_back({edge.depth, StageLoop::begin_of(target)});
    }
  }

  // Memory that rounds share, and one of them writes.
  void add_shared() {
    for (const SideLoop::Segment& segment : side_.segments) {
      if (segment.after == 0) continue;
      StageLoop::Task& first = loop_.tasks[task_at(segment.begin)];
      const size_t last = task_at(segment.after - 1);
      if (loop_.tasks[last].offset - first.offset > 1) {
        problem_ = concat("task ", report_.tasks[task_at(segment.begin)].name, " waits for task ",
                          report_.tasks[last].name, " of the micro-batch before");
      }
      first.waits.push_back({1, StageLoop::end_of(last)});
    }
  }

  size_t task_at(size_t instruction) const {
    const auto found = std::find_if(loop_.tasks.begin(), loop_.tasks.end(), [&](const auto& task) {
      return instruction < task.end;
    });
    return static_cast<size_t>(std::distance(loop_.tasks.begin(), found));
  }

  const std::vector<Instruction>& body_;
  const SideLoop& side_;
  const tasks::Report& report_;
  StageLoop loop_;
  std::string problem_;
};

}  // namespace

FoundStages find_stages(const assemble::Program& program, const SideLoop& side,
                        const tasks::Report& report) {
  return Finder(program, side, report).run();
}

}  // namespace poptorch::run
