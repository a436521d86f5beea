#include "tasks/schedule.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "support/error.h"
#include "tasks/edges.h"

namespace poptorch::tasks {

namespace {

// One stage of p in a pipeline of m micro-batches.
struct Place {
  int64_t s;
  int64_t p;
  int64_t m;
};

struct Schedule {
  std::string_view name;
  int64_t (*forward)(const Place&);
  int64_t (*backward)(const Place&);
};

int64_t first_round(const Place&) { return 0; }
int64_t one_later_each(const Place& at) { return at.s; }

constexpr Schedule schedules[] = {
    // A round of forward tasks, then one of backward tasks, each a stage further.
    {"grouped", one_later_each, [](const Place& at) { return 2 * (at.p - 1) - at.s; }},
    // A micro-batch goes back through all stages in the round in which it reaches the last one.
    {"interleaved", one_later_each, [](const Place& at) { return at.p - 1; }},
    {"sequential", first_round, first_round},
    // The first round after the last forward task, m + p - 2, is that of the last stage.
    {"fill_drain", one_later_each,
     [](const Place& at) { return at.m + 2 * (at.p - 1) - at.s; }},
};

const Schedule& schedule_from(std::string_view name) {
  std::string names;
  for (const Schedule& known : schedules) {
    if (known.name == name) return known;
    names += concat(names.empty() ? "" : ", ", known.name);
  }
  throw_user_error(concat("[schedule] there is no pipeline schedule \"", name,
                          "\". The schedules are: ", names, "."));
}

void write_offsets(const TaskEdges& found, const Schedule& schedule, int64_t m) {
  std::set<int64_t> stages;
  for (const ir::Op* task : found.tasks) stages.insert(task->attrs.get_int(ir::attr::stage));
  for (ir::Op* task : found.tasks) {
    const auto at = stages.find(task->attrs.get_int(ir::attr::stage));
    const Place place{std::distance(stages.begin(), at), static_cast<int64_t>(stages.size()), m};
    const bool is_backward = task->attrs.get_string(ir::attr::part) == "backward";
    task->attrs.set(ir::attr::offset,
                    is_backward ? schedule.backward(place) : schedule.forward(place));
  }
}

// When in a round a task begins and ends. Rounds have two halves, one of forward and one of
// backward tasks; an IPU runs its tasks of a half one after the other. A task of both parts begins
// in the first half and ends in the second.
struct Turn {
  int begin = 0;  // half
  int end = 0;
  bool is_first = true;  // of those of its IPU in the half
};

std::vector<Turn> turns_of(const std::vector<ir::Op*>& tasks) {
  std::set<std::pair<int64_t, int>> busy;  // IPU and half
  std::vector<Turn> turns;
  for (const ir::Op* task : tasks) {
    const std::string& part = task->attrs.get_string(ir::attr::part);
    const int64_t ipu = task->attrs.get_int(ir::attr::ipu);
    const int begin = part == "backward" ? 1 : 0, end = part == "forward" ? 0 : 1;
    turns.push_back({begin, end, !busy.contains({ipu, begin})});
    busy.insert({{ipu, begin}, {ipu, end}});
  }
  return turns;
}

// For how many micro-batches the values of an edge need room: one for each round from source to
// target, and one more where the source may end before the target of the same round begins.
void write_depths(const TaskEdges& found, int64_t m) {
  const std::vector<Turn> turns = turns_of(found.tasks);
  const auto offset = [&](size_t i) { return found.tasks[i]->attrs.get_int(ir::attr::offset); };
  for (const Edge& edge : found.edges) {
    if (edge.op == nullptr) continue;
    int64_t depth = 1;
    for (const size_t target : edge.targets) {
      const int64_t rounds = offset(target) - offset(edge.source);
      const bool may_end_first =
          turns[edge.source].end < turns[target].begin || !turns[target].is_first;
      depth = std::max(depth, rounds + (may_end_first ? 1 : 0));
    }
    edge.op->attrs.set(ir::attr::depth, std::min(depth, m));
  }
}

}  // namespace

std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> names;
  for (const Schedule& known : schedules) names.push_back(known.name);
  return names;
}

void schedule(ir::Module& module) {
  for (const auto& graph : module.graphs) {
    if (!has_tasks(*graph)) continue;
    const ir::Op* loop = pipeline_of(module, *graph);
    const int64_t m = loop == nullptr ? 1 : loop->attrs.get_int(ir::attr::count);
    const std::string name =
        loop == nullptr ? "sequential" : loop->attrs.get_string(ir::attr::pipeline);
    const TaskEdges found = edges_of(*graph);
    write_offsets(found, schedule_from(name), m);
    write_depths(found, m);
  }
}

}  // namespace poptorch::tasks
