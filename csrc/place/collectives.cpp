#include "place/collectives.h"

#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/part.h"
#include "ops/op_def.h"
#include "support/error.h"
#include "support/settings/switches.h"

namespace poptorch::place {

namespace {

// Equal where two ops can be one; empty: the op stays as it is.
std::string key_of(const ir::Op& op) {
  if (op.name != ir::op::all_reduce || ir::part_of(op) == ir::Part::forward) return "";
  std::string key(ir::name_of(op.operand(0)->type.dtype));
  for (const auto& [name, value] : op.attrs) key += concat(", ", name, "=", value.text());
  return key;
}

bool reads(const ir::Op& op, const std::unordered_set<const ir::Op*>& makers) {
  for (const ir::Value* operand : op.operands) {
    if (operand != nullptr && makers.contains(operand->op)) return true;
  }
  return false;
}

class Merger {
 public:
  explicit Merger(ir::Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const std::string key = key_of(*graph_.ops[i]);
      if (!key.empty()) merge_from(i, key);
    }
  }

 private:
  // Joins the op at `first` and those behind it; they move to where the last one is.
  void merge_from(size_t first, const std::string& key) {
    find(first, key);
    if (members_.size() < 2) return;
    std::vector<std::unique_ptr<ir::Op>> ops, late;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      std::unique_ptr<ir::Op>& op = graph_.ops[i];
      const bool is_member = members_.contains(op.get());
      if (is_member) {
        joined_.push_back(std::move(op));
        if (joined_.size() < members_.size()) continue;
        ops.push_back(join());
        std::move(late.begin(), late.end(), std::back_inserter(ops));
        late.clear();
      } else if (users_.contains(op.get()) && joined_.size() < members_.size()) {
        late.push_back(std::move(op));
      } else {
        ops.push_back(std::move(op));
      }
    }
    graph_.ops = std::move(ops);
    graph_.replace_all(instead_);
    joined_.clear();
    instead_.clear();
  }

  // The ops that are alike, up to one that needs the result of an earlier one. Ops that use their
  // results before that have no effects, so they can wait.
  void find(size_t first, const std::string& key) {
    members_ = {graph_.ops[first].get()};
    users_ = members_;
    for (size_t i = first + 1; i < graph_.ops.size(); ++i) {
      const ir::Op& op = *graph_.ops[i];
      if (reads(op, users_)) {
        const ops::OpDef* row = ops::find_op(op.name);
        if (row == nullptr || row->effects || key_of(op) == key) return;
        users_.insert(&op);
      } else if (key_of(op) == key) {
        members_.insert(&op);
        users_.insert(&op);
      }
    }
  }

  std::unique_ptr<ir::Op> join() {
    std::vector<ir::Value*> operands;
    std::vector<ir::Type> types;
    for (const auto& op : joined_) {
      for (size_t i = 0; i < op->results.size(); ++i) {
        operands.push_back(op->operand(i));
        types.push_back(op->result(i)->type);
      }
    }
    const ir::Op& like = *joined_.front();
    auto made = graph_.make(like.name, operands, like.attrs, types, like.source_location);
    size_t number = 0;
    for (const auto& op : joined_) {
      for (const auto& result : op->results) instead_.emplace(result.get(), made->result(number++));
    }
    return made;
  }

  ir::Graph& graph_;
  std::unordered_set<const ir::Op*> members_, users_;
  std::vector<std::unique_ptr<ir::Op>> joined_;
  std::unordered_map<ir::Value*, ir::Value*> instead_;
};

}  // namespace

void merge_all_reduces(ir::Module& module) {
  if (!is_on("merge_all_reduces")) return;
  for (const auto& graph : module.graphs) Merger(*graph).run();
}

void write_shard_bytes(ir::Module& module) {
  for (const auto& graph : module.graphs) {
    for (const auto& op : graph->ops) {
      const bool gathers = op->name == ir::op::all_gather;
      if (!gathers && op->name != ir::op::reduce_scatter) continue;
      const ir::Type& part = (gathers ? op->operand(0) : op->result())->type;
      op->attrs.set(ir::attr::bytes, (op->attrs.get_int(ir::attr::shards) - 1) * part.bytes());
    }
  }
}

}  // namespace poptorch::place
