// The rules of ir/verify.h. They stand here because they read op rows, on which ir must not depend.
#include "ir/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ops/alone.h"
#include "ops/layout.h"
#include "ops/verify/verify_parts.h"
#include "support/error.h"
#include "support/loading/not_linked.h"

namespace poptorch::ir {

namespace {

class Verifier : Where {
 public:
  explicit Verifier(const Module& module) : module_(module) {}

  void any() {
    std::set<std::string_view> names;
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      RULE(names.insert(graph->name).second, "another graph has the same name");
      check_values();
      for (const auto& op : graph->ops) check_op(*op);
      check_states();
      check_inputs();
    }
    check_loops();
    check_preprocess();
  }

  void is_not_lowered() {
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        op_ = op.get();
        const std::string_view part = ops::lowered_part(*op);
        RULE(part.empty(), "only lowering for a target makes `", part, "`");
      }
    }
  }

  // Every value in memory has an address: a number for one result, a list for several.
  void has_addresses() {
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        op_ = op.get();
        if (op->results.empty() || ops::is_alias(*op)) continue;
        const Attr* attr = op->attrs.find(ir::attr::addr);
        RULE(attr != nullptr, "needs `addr`");
        const auto* list = std::get_if<AttrList>(&attr->value);
        const size_t count = list == nullptr ? 1 : list->size();
        RULE(count == op->results.size(), "has ", count, " addresses for ", op->results.size(),
             " results");
      }
    }
  }

 private:
  // SSA: each value is defined once, before its uses, in the same graph.
  void check_values() {
    std::unordered_set<const Value*> defined;
    std::unordered_set<std::string_view> names;
    for (const auto& op : graph_->ops) {
      op_ = op.get();
      for (const Value* operand : op->operands) {
        RULE(operand == nullptr || defined.contains(operand), "operand %",
             operand == nullptr ? "" : operand->name, " is not defined before");
      }
      for (const auto& result : op->results) {
        RULE(result->op == op_, "%", result->name, " does not point at the op that defines it");
        RULE(names.insert(result->name).second, "%", result->name, " is defined twice");
        defined.insert(result.get());
      }
    }
    op_ = nullptr;
    for (const Value* output : graph_->outputs) {
      RULE(output != nullptr && defined.contains(output), "an output is not defined in it");
    }
  }

  void check_op(const Op& op) {
    op_ = &op;
    const ops::OpDef* row = ops::find_op(op.name);
    if (row == nullptr) {
      check_is_linked("op ", op.name.text());
      const std::string near = ops::near_names(op.name.text());
      fail("there is no such op", near.empty() ? "" : concat(". Did you mean ", near, "?"));
    }
    try {
      ops::check_signature(*row, op);
      if (row->infer != nullptr) check_types(ops::infer(op));
    } catch (const UserError& error) {
      if (error.kind == "ImportError") throw;  // a library is missing: the graph may be right
      fail(error.what());
    }
    check_result_count(*row);
    for (const Value* operand : op.operands) {
      RULE(operand == nullptr || ops::takes_strides(row->strided, operand->type), "operand %",
           operand == nullptr ? "" : operand->name, " has strides that the kernel does not take");
    }
    for (const auto& result : op.results) {
      RULE(result->type.is_contiguous() || ops::is_alias(op), "%", result->name,
           " has strides, only a view or a move may");
    }
    RULE(!has_bodies(op) || takes_graphs(*row), "names a graph, its row takes none");
    if (op.name == ir::op::view) check_view();
    RULE(!ops::is_move(op) || op.operand(0)->type == op.result()->type,
         "moves a value of another type");
    if (op.name == ir::op::constant) check_constant();
    check_part();
    check_inplace();
  }

  static bool takes_graphs(const ops::OpDef& row) {
    return std::any_of(row.attrs.begin(), row.attrs.end(), [](const ops::AttrDef& attr) {
      return std::holds_alternative<GraphRef>(attr.default_value.value);
    });
  }

  void check_result_count(const ops::OpDef& row) const {
    const size_t count = op_->results.size();
    size_t least = 0;
    bool any_number = false;
    for (const std::string& name : row.results) {
      any_number = any_number || name.ends_with('*');
      least += !name.ends_with('*') && !name.ends_with('?');
    }
    RULE(count >= least && (any_number || count <= row.results.size()), "has ", count,
         " results, its row names ", row.results.size());
  }

  void check_types(const std::vector<Type>& types) const {
    RULE(types.size() == op_->results.size(), "has ", op_->results.size(),
         " results, the row infers ", types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      const Type& declared = op_->result(i)->type;
      RULE(types[i].dtype == declared.dtype && types[i].sizes == declared.sizes, "%",
           op_->result(i)->name, " is declared ", declared.text(), ", the row infers ",
           types[i].text());
    }
  }

  void check_view() const {
    const Type& whole = op_->operand(0)->type;
    const Type& part = op_->result()->type;
    RULE(whole.dtype == part.dtype, "a view keeps the dtype of its operand, ", whole.text());
    const int64_t offset = op_->attrs.get_int(ir::attr::offset, 0);
    RULE(offset >= 0 && offset <= whole.span() - part.span(), "the view takes ", part.span(),
         " elements from element ", offset, " on, its operand has ", whole.span());
  }

  void check_constant() const {
    const Type& type = op_->result()->type;
    if (op_->attrs.has(ir::attr::hash)) {
      const auto stored = module_.constants.find(op_->attrs.get_string(ir::attr::hash));
      RULE(stored != module_.constants.end(), "the module has no data of this hash");
      RULE(stored->second->type == type, "the data of this hash is ", stored->second->type.text());
      return;
    }
    const Attr* data = op_->attrs.find(ir::attr::data);
    const auto* items = data == nullptr ? nullptr : std::get_if<AttrList>(&data->value);
    RULE(items != nullptr, "has neither `hash` nor a list `data`");
    RULE(static_cast<int64_t>(items->size()) == type.numel(), "`data` has ", items->size(),
         " elements, the type ", type.numel());
    for (const Attr& item : *items) {
      const bool is_real = is_float(type.dtype);
      const bool fits = std::holds_alternative<int64_t>(item.value) ||
                        (is_real && std::holds_alternative<double>(item.value)) ||
                        (!is_real && std::holds_alternative<bool>(item.value));
      RULE(fits, "`data` holds ", item.text(), ", which is no ", name_of(type.dtype));
    }
  }

  void check_part() const {
    const Attr* attr = op_->attrs.find(ir::attr::part);
    if (attr == nullptr) return;
    const auto* name = std::get_if<std::string>(&attr->value);
    const bool is_both = op_->name == ir::op::task && name != nullptr && *name == "both";
    RULE(is_both || (name != nullptr && part_from(*name)), "has part=", attr->text(),
         ", which is not one of forward, backward, update");
  }

  // inplace=[operand per result, or -1]
  void check_inplace() const {
    if (!op_->attrs.has(ir::attr::inplace)) return;
    const Dims taken = op_->attrs.get_ints(ir::attr::inplace);
    RULE(taken.size() == op_->results.size(), "`inplace` has ", taken.size(), " entries for ",
         op_->results.size(), " results");
    for (size_t i = 0; i < taken.size(); ++i) {
      if (taken[i] < 0) continue;
      const std::vector<int> allowed = ops::inplace_candidates(*op_, i);
      RULE(std::find(allowed.begin(), allowed.end(), taken[i]) != allowed.end(),
           "the row does not let result ", i, " take operand ", taken[i]);
      const Value* operand = op_->operand(static_cast<size_t>(taken[i]));
      RULE(operand != nullptr && operand->type == op_->result(i)->type, "result ", i,
           " takes operand ", taken[i], ", whose type differs");
    }
  }

  // A state has one type in the module and at most one assign in a graph.
  void check_states() {
    std::set<std::string_view> assigned;
    for (const auto& op : graph_->ops) {
      op_ = op.get();
      if (op->name != ir::op::state && op->name != ir::op::assign) continue;
      const std::string& path = op->attrs.get_string(ir::attr::path);
      const Type& type = op->name == ir::op::state ? op->result()->type : op->operand(0)->type;
      const auto [known, is_new] = states_.emplace(path, type);
      RULE(is_new || known->second == type, "state \"", path, "\" is ", type.text(), " here and ",
           known->second.text(), " elsewhere");
      if (op->name == ir::op::state) {
        const bool is_last = ops::is_channels_last(*op);
        RULE(!is_last || type.rank() >= 3, "a state with channels has 3 dimensions or more");
        RULE(!ops::is_sharded(*op) || (type.rank() == 1 && !is_last),
             "a part of a sharded state is a row of elements");
        const ir::Dims whole = ops::is_sharded(*op) ? op->attrs.get_ints(ir::attr::shard_of)
                                                    : ir::Dims({-1});
        RULE(shard_of_.emplace(path, whole).first->second == whole, "state \"", path,
             "\" is a part of another shape elsewhere");
        RULE(channels_last_.emplace(path, is_last).first->second == is_last, "state \"", path,
             "\" has another layout elsewhere");
      }
      if (op->name == ir::op::assign) {
        RULE(assigned.insert(path).second, "state \"", path, "\" is assigned twice in one graph");
      }
    }
  }

  // What `preprocess` computes stays as it is while `main` runs, any number of times.
  void check_preprocess() {
    const Graph* preprocess = module_.find_graph("preprocess");
    if (preprocess == nullptr) return;
    std::set<std::string_view> preprocessed, assigned;
    for (const auto& graph : module_.graphs) {
      for (const auto& op : graph->ops) {
        if (op->name != ir::op::assign) continue;
        (graph.get() == preprocess ? preprocessed : assigned)
            .insert(op->attrs.get_string(ir::attr::path));
      }
    }
    enter(*preprocess);
    for (const auto& op : preprocess->ops) {
      op_ = op.get();
      const ops::OpDef& row = ops::op_def(op->name);
      const bool may_have_effects = op->name == ir::op::assign;
      RULE(!row.random && (!row.effects || may_have_effects) && op->name != ir::op::stream_in,
           "preprocess runs at times of its own: it may only compute and assign");
      if (op->name == ir::op::state) {
        const std::string& path = op->attrs.get_string(ir::attr::path);
        RULE(!preprocessed.contains(path) && !assigned.contains(path), "state \"", path,
             "\" is read by preprocess and assigned, its new value would not be seen");
      }
      RULE(op->name != ir::op::assign || !assigned.contains(op->attrs.get_string(ir::attr::path)),
           "state \"",
           op->name == ir::op::assign ? op->attrs.get_string(ir::attr::path) : "",
           "\" is assigned elsewhere, too");
    }
    op_ = nullptr;
    RULE(preprocess->outputs.empty(), "preprocess has outputs, which are not used");
  }

  // Each carried value is read by at most one `input`.
  void check_inputs() {
    std::map<int64_t, const Op*>& inputs = inputs_[graph_->name];
    for (const auto& op : graph_->ops) {
      op_ = op.get();
      if (op->name != ir::op::input) continue;
      RULE(inputs.emplace(op->attrs.get_int(ir::attr::index), op_).second,
           "another input has this index");
    }
  }

  void check_loops() {
    Bodies bodies;
    std::set<std::string> run;
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      for (const auto& op : graph->ops) {
        op_ = op.get();
        for (const std::string& body : body_names(*op)) {
          RULE(module_.find_graph(body) != nullptr, "the module has no such graph");
          bodies[graph->name].emplace_back(body, op->name == ir::op::task ? 0 : 1);
          run.insert(body);
        }
        if (op->name == ir::op::loop) check_loop();
      }
    }
    std::map<std::string, int> heights;
    for (const auto& graph : module_.graphs) {
      enter(*graph);
      RULE(run.contains(graph->name) || inputs_[graph->name].empty(),
           "has inputs, but no loop runs it");
      find_height(graph->name, bodies, 0, heights);
    }
  }

  void check_loop() {
    const Graph* body = &body_of(module_, *op_);
    RULE(op_->attrs.get_int(ir::attr::count) >= 1, "a loop runs at least once");
    const size_t carried = op_->operands.size();
    RULE(!op_->attrs.get_bool(ir::attr::conditional, false) || ops::may_run_alone(module_, *body),
         "is conditional, and its body has streams, states or reductions over replicas");
    RULE(body->outputs.size() == carried, "carries ", carried, " values, its body returns ",
         body->outputs.size());
    for (size_t i = 0; i < carried; ++i) {
      RULE(body->outputs[i]->type == op_->operands[i]->type, "carried value ", i, " is ",
           op_->operands[i]->type.text(), ", its body returns ", body->outputs[i]->type.text());
    }
    for (const auto& [index, input] : inputs_[body->name]) {
      RULE(index >= 0 && index < static_cast<int64_t>(carried), "carries ", carried,
           " values, its body reads number ", index);
      const Type& type = op_->operands[static_cast<size_t>(index)]->type;
      RULE(input->result()->type == type, "carried value ", index, " is ", type.text(),
           ", its body reads ", input->result()->type.text());
    }
  }

  // By graph: the graphs that it runs, and by how many loops.
  using Bodies = std::map<std::string, std::vector<std::pair<std::string, int>>>;

  // How many loops stand one in the other in a graph, with `around` of them around it.
  int find_height(const std::string& name, const Bodies& bodies, int around,
                  std::map<std::string, int>& heights) const {
    check_nesting(around);
    constexpr int unknown = -1;  // while the graph's own loops are looked at
    const auto [known, is_new] = heights.try_emplace(name, unknown);
    RULE(is_new || known->second != unknown, "runs itself");
    if (!is_new) return known->second;
    int height = 0;
    if (const auto called = bodies.find(name); called != bodies.end()) {
      for (const auto& [body, loops] : called->second) {
        height = std::max(height, loops + find_height(body, bodies, around + loops, heights));
      }
    }
    check_nesting(height);
    return heights[name] = height;
  }

  void check_nesting(int loops) const {
    RULE(loops <= most_nested_loops, "has more than ", most_nested_loops,
         " loops one in the other");
  }

  const Module& module_;
  std::map<std::string, Type> states_;
  std::map<std::string, bool> channels_last_;  // states
  std::map<std::string, ir::Dims> shard_of_;   // states; {-1}: each replica has all
  std::map<std::string, std::map<int64_t, const Op*>> inputs_;
};

}  // namespace

void verify(const Module& module, Level level) {
  Verifier verifier(module);
  verifier.any();
  verify_tasks(module);
  if (level == Level::translated || level == Level::placed) verifier.is_not_lowered();
  if (level >= Level::translated) verify_parts(module);
  if (level >= Level::placed) {
    verify_places(module);
    verify_task_places(module);
    // Later steps only put in copies within memory.
    if (level <= Level::lowered) verify_moves(module);
  }
  if (level >= Level::scheduled) verify_order(module);
  if (level >= Level::planned) verifier.has_addresses();
}

}  // namespace poptorch::ir
