#include "plan/copies.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/bodies.h"
#include "rewrite/edit.h"
#include "schedule/schedule.h"
#include "schedule/states.h"

namespace poptorch::plan {

namespace {

std::unique_ptr<ir::Op> make_copy(ir::Graph& graph, ir::Value* value, const ir::Op& like) {
  const ir::Type type{value->type.dtype, value->type.sizes, {}};
  auto copy = rewrite::make_like(graph, like, ir::op::contiguous, {value}, {}, {type});
  copy->source_location = value->op->source_location;
  return copy;
}

// The first loop of each state that assigns it inside, by position.
std::map<std::string, size_t> first_assigning_loops(const ir::Module& module,
                                                    const ir::Graph& graph,
                                                    const schedule::StateUses& uses) {
  std::map<std::string, size_t> loops;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const ir::Graph* body : ir::bodies_of(module, *graph.ops[i])) {
      for (const auto& path : uses.at(body).assigned) loops.try_emplace(path, i);
    }
  }
  return loops;
}

// Positions of the last use of every value, views counted as uses of what they look at.
std::unordered_map<const ir::Value*, size_t> last_uses(const ir::Graph& graph) {
  std::unordered_map<const ir::Value*, size_t> last;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (ir::Value* operand : graph.ops[i]->operands) {
      if (operand != nullptr) last[rewrite::memory_of(operand)] = i;
    }
  }
  for (ir::Value* output : graph.outputs) last[rewrite::memory_of(output)] = graph.ops.size();
  return last;
}

bool copy_shadowed_states(const ir::Module& module, ir::Graph& graph,
                          const schedule::StateUses& uses) {
  const auto loops = first_assigning_loops(module, graph, uses);
  if (loops.empty()) return false;
  const auto last = last_uses(graph);
  std::map<size_t, std::unique_ptr<ir::Op>> copies;  // by position of the state op
  std::unordered_map<ir::Value*, ir::Value*> replaced;
  std::vector<std::pair<size_t, size_t>> moves;  // state op, and where it must stand
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i]->name != ir::op::state) continue;
    ir::Value* value = graph.ops[i]->result();
    const auto loop = loops.find(graph.ops[i]->attrs.get_string(ir::attr::path));
    const auto use = last.find(value);
    if (loop == loops.end() || use == last.end() || use->second < loop->second) continue;
    copies[i] = make_copy(graph, value, *graph.ops[i]);
    replaced.emplace(value, copies[i]->result());
    moves.emplace_back(i, std::min(i, loop->second));
  }
  graph.replace_all(replaced);
  std::map<size_t, std::vector<std::unique_ptr<ir::Op>>> inserted;
  for (const auto& [from, to] : moves) {
    inserted[to].push_back(std::move(graph.ops[from]));
    inserted[to].push_back(std::move(copies[from]));
  }
  std::vector<std::unique_ptr<ir::Op>> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (auto& op : inserted[i]) ops.push_back(std::move(op));
    if (graph.ops[i] != nullptr) ops.push_back(std::move(graph.ops[i]));
  }
  graph.ops = std::move(ops);
  return !replaced.empty();
}

}  // namespace

void insert_copies(const ir::Module& module, const std::vector<NeededCopy>& copies) {
  std::map<std::string, ir::Graph*> graphs;  // by name, for a fixed order
  std::unordered_map<const ir::Op*, std::vector<std::unique_ptr<ir::Op>>> before;
  for (const NeededCopy& needed : copies) {
    graphs.emplace(needed.graph->name, needed.graph);
    ir::Value*& value = needed.user == nullptr ? needed.graph->outputs[needed.index]
                                               : needed.user->operands[needed.index];
    // What a loop carries is where it was made.
    const bool is_beside_user = needed.user != nullptr && !ir::has_bodies(*needed.user);
    const ir::Op& like = is_beside_user ? *needed.user : ir::maker_of(module, *value);
    std::unique_ptr<ir::Op> copy = make_copy(*needed.graph, value, like);
    value = copy->result();
    if (needed.user == nullptr) {
      needed.graph->ops.push_back(std::move(copy));
    } else {
      before[needed.user].push_back(std::move(copy));
    }
  }
  for (const auto& [name, graph] : graphs) {
    std::vector<std::unique_ptr<ir::Op>> ops;
    for (auto& op : graph->ops) {
      if (const auto here = before.find(op.get()); here != before.end()) {
        for (auto& copy : here->second) ops.push_back(std::move(copy));
      }
      ops.push_back(std::move(op));
    }
    graph->ops = std::move(ops);
    schedule::number(*graph);
  }
}

void copy_shadowed_states(ir::Module& module) {
  const schedule::StateUses uses = schedule::state_uses(module);
  for (const auto& graph : module.graphs) {
    if (copy_shadowed_states(module, *graph, uses)) schedule::number(*graph);
  }
}

}  // namespace poptorch::plan
