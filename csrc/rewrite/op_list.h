// A list of ops under construction: for passes that rebuild a graph's ops one after the other.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace poptorch::rewrite {

class OpList {
 public:
  explicit OpList(ir::Graph& graph) : graph_(graph) {}

  // Makes an op with the types that its row infers, behind those added so far.
  ir::Op* make(ir::OpName name, std::vector<ir::Value*> operands, ir::Attrs attrs,
               const ir::Op& like);
  // The first result of such an op.
  ir::Value* add(ir::OpName name, std::vector<ir::Value*> operands, ir::Attrs attrs,
                 const ir::Op& like) {
    return make(name, std::move(operands), std::move(attrs), like)->result();
  }
  void take(std::unique_ptr<ir::Op> op) { ops_.push_back(std::move(op)); }
  // The op is not in the list. It lives as long as the list: others may still point at it.
  void drop(std::unique_ptr<ir::Op> op) { dropped_.push_back(std::move(op)); }
  bool has_dropped() const { return !dropped_.empty(); }
  // The ops become those of the graph.
  void finish() { graph_.ops = std::move(ops_); }
  // All of that for a graph whose ops are replaced one by one: `replacement(op)` gives the value
  // that stands for the op's first result, and adds to the list what computes it; nullptr: the op
  // stays, unless `is_gone(op)`. Returns whether an op was replaced.
  bool rebuild(const auto& replacement, const auto& is_gone) {
    std::unordered_map<ir::Value*, ir::Value*> instead;
    for (auto& op : graph_.ops) {
      ir::Value* value = replacement(*op);
      if (value != nullptr) instead.emplace(op->result(), value);
      if (value != nullptr || is_gone(*op)) {
        drop(std::move(op));
      } else {
        take(std::move(op));
      }
    }
    finish();
    graph_.replace_all(instead);
    return !instead.empty();
  }

 private:
  ir::Graph& graph_;
  std::vector<std::unique_ptr<ir::Op>> ops_, dropped_;
};

// Attributes {name: value, ...}.
ir::Attrs attrs_of(std::initializer_list<std::pair<ir::AttrName, ir::Attr>> items);

}  // namespace poptorch::rewrite
