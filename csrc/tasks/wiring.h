// The graph of tasks and edges, made from ops that know their tasks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "tasks/groups.h"

namespace poptorch::tasks {

class Wiring {
 public:
  // `hops`: values go from stage to stage.
  Wiring(ir::Module& module, ir::Graph& graph, const Groups& groups, bool hops)
      : module_(module), graph_(graph), groups_(groups), hops_(hops) {}

  void run();

 private:
  struct Body {
    std::unique_ptr<ir::Op> op;                                // the task
    std::vector<std::unique_ptr<ir::Op>> inputs, ops;          // of the body
    std::vector<ir::Value*> outputs;
    std::unordered_map<const ir::Value*, ir::Value*> read_as;  // what ops of the body read
    std::unordered_map<const ir::Value*, ir::Value*> held;     // values that are copied, too
    std::unordered_map<const ir::Value*, ir::Value*> given;    // results of the task
  };

  void take_ops();
  void connect(size_t task);

  ir::Value* operand_of(size_t task, const ir::Op& reader, ir::Value* value);
  ir::Value* made_here(size_t task, ir::Value* value);
  ir::Value* take(size_t task, const ir::Op* reader, ir::Value* operand, const std::string& name);

  // The value in the body of a task. It comes from the last task of its IPU that has it, or else by
  // a copy: a pass-through of the tasks between, in a pipeline.
  ir::Value* arrive(size_t task, const ir::Op* reader, ir::Value* value);
  ir::Value* edge_from(size_t from, size_t task, const ir::Op* reader, ir::Value* value);
  ir::Value* edge_of_graph(size_t task, ir::Value* value);
  size_t before(size_t task, size_t from) const;
  ir::Value* given_by(size_t task, ir::Value* value);

  // The value as an op of the graph itself has it.
  ir::Value* in_graph(const ir::Op& reader, ir::Value* value);
  ir::Value* made_in_graph(ir::Value* value);

  ir::Value* add_move(ir::OpName name, ir::Value* from, ir::Attrs attrs, const std::string& wanted);
  ir::Attrs attrs_at(size_t task, const ir::Op* reader) const;
  std::string free_name(const std::string& wanted, const ir::Type& type);
  int64_t ipu_of(size_t task) const { return groups_.tasks[task].ipu; }

  void emit(const ir::Op* op);
  void finish();

  ir::Module& module_;
  ir::Graph& graph_;
  const Groups& groups_;
  const bool hops_;
  bool has_parts_ = false;
  std::vector<Body> bodies_;
  std::vector<std::unique_ptr<ir::Op>> sources_;  // that are copied to where they are read
  std::vector<const ir::Op*> order_;              // of ops of the graph
  std::unordered_map<const ir::Op*, std::unique_ptr<ir::Op>> left_;  // those not emitted yet
  std::unordered_map<const ir::Value*, ir::Value*> made_in_graph_;
  std::unordered_map<const ir::Value*, std::vector<size_t>> holders_;  // tasks that hold a value
  // The copy of a value to another IPU that place made.
  std::map<std::pair<const ir::Value*, int64_t>, ir::Op*> copies_;
  std::unordered_map<const ir::Op*, ir::Value*> copied_;  // what such a copy copied before the cut
  std::unordered_set<const ir::Op*> used_copies_;
};

}  // namespace poptorch::tasks
