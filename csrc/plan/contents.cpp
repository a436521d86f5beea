#include "plan/contents.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/bodies.h"
#include "ops/op_def.h"
#include "plan/layout.h"
#include "rewrite/edit.h"
#include "support/error.h"

namespace poptorch::plan {

namespace {

// A state's reads and writes, along the timeline.
struct Read {
  const ir::Op* op;
  int entry;  // of its graph
};

struct Write {
  const ir::Op* assign;
  int position;
};

struct StateUse {
  std::vector<Read> reads;
  std::vector<Write> writes;
};

class Finder {
 public:
  explicit Finder(const ir::Module& module) : module_(module) {
    out_.line = make_timeline(module);
    for (const ir::Graph* graph : module.entries()) visit(*graph, nullptr);
    for (const auto& [path, use] : states_) add_state(path, use);
    for (const ir::Op* op : inplace_) link_inplace(*op);
  }

  // Without the contents that became part of others.
  Contents take() {
    std::vector<int> number(out_.all.size(), -1);
    std::vector<Content> kept;
    for (size_t i = 0; i < out_.all.size(); ++i) {
      if (find(static_cast<int>(i)) != static_cast<int>(i)) continue;
      number[i] = static_cast<int>(kept.size());
      kept.push_back(out_.all[i]);
    }
    const auto renumber = [&](int& content) {
      if (content >= 0) content = number[static_cast<size_t>(find(content))];
    };
    for (Content& content : kept) {
      renumber(content.taken_by);
      renumber(content.carried_from);
    }
    out_.all = std::move(kept);
    return std::move(out_);
  }

 private:
  // -- contents: a union-find over indices -----------------------------------------------------

  int add(Content content) {
    out_.all.push_back(std::move(content));
    parent_.push_back(static_cast<int>(parent_.size()));
    return parent_.back();
  }

  int find(int content) const {
    while (parent_[static_cast<size_t>(content)] != content) {
      content = parent_[static_cast<size_t>(content)];
    }
    return content;
  }
  Content& at(int content) { return out_.all[static_cast<size_t>(find(content))]; }
  int content_of(const ir::Value& value) const { return find(by_value_.at(&value)); }

  void extend(int content, const Span& span) {
    Span& own = at(content).span;
    own = {std::min(own.begin, span.begin), std::max(own.end, span.end)};
  }

  void merge(int from, int into) {
    from = find(from);
    into = find(into);
    if (from == into) return;
    extend(into, at(from).span);
    parent_[static_cast<size_t>(from)] = into;
  }

  const Span& life(const ir::Value& value) const { return out_.line.values.at(&value); }

  int add_value(const ir::Value& value) {
    Content content;
    content.op = value.op;
    content.value = &value;
    content.addr = addr_of(value);
    content.bytes = value.type.bytes();
    content.span = life(value);
    by_value_[&value] = add(std::move(content));
    return by_value_.at(&value);
  }

  // `value` is another name for what `same` names, or for a part of it.
  void alias(const ir::Value& value, const ir::Value& same) {
    by_value_[&value] = content_of(same);
    extend(content_of(same), life(value));
  }

  // -- the walk --------------------------------------------------------------------------------

  void visit(const ir::Graph& graph, const ir::Op* loop) {
    for (const auto& op : graph.ops) visit_op(*op, graph, loop);
  }

  void visit_op(const ir::Op& op, const ir::Graph& graph, const ir::Op* loop) {
    if (op.attrs.get_int(ir::attr::scratch_bytes, 0) != 0) add_scratch(op);
    if (op.name == ir::op::constant) return add_constant(op);
    if (op.name == ir::op::input) return add_input(op, graph, *loop);
    if (op.name == ir::op::loop) return add_loop(op);
    if (ops::is_alias(op)) return add_alias(op);
    if (op.name == ir::op::stream_out) return mark_result(op.operand(0));
    if (op.name == ir::op::state) {
      const int entry = out_.line.graphs.at(&graph).begin;
      states_[op.attrs.get_string(ir::attr::path)].reads.push_back({&op, entry});
    } else if (op.name == ir::op::assign) {
      const int position = out_.line.ops.at(&op).begin;
      states_[op.attrs.get_string(ir::attr::path)].writes.push_back({&op, position});
    }
    for (const auto& result : op.results) add_value(*result);
    if (op.attrs.has(ir::attr::inplace)) inplace_.push_back(&op);
  }

  void add_scratch(const ir::Op& op) {
    Content scratch;
    scratch.kind = Content::Kind::scratch;
    scratch.op = &op;
    scratch.addr = op.attrs.get_int(ir::attr::scratch_addr);
    scratch.bytes = op.attrs.get_int(ir::attr::scratch_bytes);
    scratch.span = out_.line.ops.at(&op);
    add(std::move(scratch));
  }

  void add_alias(const ir::Op& op) {
    const ir::Value& base = *op.operand(0);
    const int64_t offset = op.attrs.get_int(ir::attr::offset, 0) * ir::item_bytes(base.type.dtype);
    INTERNAL_CHECK(addr_of(*op.result()) == addr_of(base) + offset, "[plan] `", op.text(),
                   "` is not ", offset, " bytes behind %", base.name, " at ", addr_of(base));
    alias(*op.result(), base);
  }

  // Where a loop makes a result, its last round does.
  void mark_result(ir::Value* value) {
    const ir::Value* base = rewrite::memory_of(value);
    Content& content = at(content_of(*value));
    const bool is_whole = value->type.numel() == base->type.numel() &&
                          base->type.bytes() == content.bytes;
    if (!is_whole || content.is_result) return;
    content.is_result = true;
    if (content.op->name != ir::op::loop) return;
    const ir::Graph& body = ir::body_of(module_, *content.op);
    for (size_t i = 0; i < body.outputs.size(); ++i) {
      const int result = content_of(*content.op->results.at(i));
      if (result == content_of(*value)) mark_result(body.outputs[i]);
    }
  }

  // One content for all `constant` ops of the same data at the same address.
  void add_constant(const ir::Op& op) {
    const int content = add_value(*op.result());
    at(content).kind = Content::Kind::constant;
    at(content).span = {0, out_.line.end};
    const ir::Attr* data = op.attrs.find(ir::attr::hash);
    if (data == nullptr || data->is_none()) data = op.attrs.find(ir::attr::data);
    std::string key = std::to_string(addr_of(*op.result())) + op.result()->type.text();
    if (data != nullptr) key += data->text();
    merge(content, constants_.try_emplace(key, content).first->second);
  }

  static bool is_carried_unchanged(const ir::Graph& body, size_t index) {
    const ir::Op* op = body.outputs.at(index)->op;
    return op->name == ir::op::input &&
           op->attrs.get_int(ir::attr::index) == static_cast<int64_t>(index);
  }

  void add_input(const ir::Op& op, const ir::Graph& graph, const ir::Op& loop) {
    const auto index = static_cast<size_t>(op.attrs.get_int(ir::attr::index));
    const ir::Value& operand = *loop.operand(index);
    check_equal_addr(operand, *op.result(), loop);
    if (is_carried_unchanged(graph, index)) return alias(*op.result(), operand);
    const int content = add_value(*op.result());
    at(content).carried_from = content_of(operand);
  }

  void add_loop(const ir::Op& op) {
    const ir::Graph& body = ir::body_of(module_, op);
    visit(body, &op);
    for (size_t i = 0; i < op.results.size(); ++i) {
      const ir::Value& operand = *op.operand(i);
      check_equal_addr(operand, *op.result(i), op);
      check_equal_addr(*body.outputs.at(i), *op.result(i), op);
      if (is_carried_unchanged(body, i)) {
        alias(*op.result(i), operand);
        // Unchanged in every round, not only up to its last use in one.
        extend(content_of(operand), out_.line.graphs.at(&body));
      } else {
        const int content = add_value(*op.result(i));
        at(content).carried_from = content_of(operand);
      }
    }
  }

  static void check_equal_addr(const ir::Value& a, const ir::Value& b, const ir::Op& loop) {
    INTERNAL_CHECK(addr_of(a) == addr_of(b), "[plan] %", a.name, " at ", addr_of(a), " and %",
                   b.name, " at ", addr_of(b), " must share memory around `", loop.text(), "`");
  }

  // -- states ----------------------------------------------------------------------------------

  // Where a content ends that is there at `position`, when the state is written next at `next`: the
  // body of a loop that does not write it needs it in every round.
  int end_of_rounds(int position, int next) const {
    int end = position;
    for (const auto& [graph, span] : out_.line.graphs) {
      if (span.overlaps({position, position}) && !span.overlaps({next, next})) {
        end = std::max(end, span.end);
      }
    }
    return end;
  }

  // `preprocess` runs again between two runs of `main`, when states hold what the last one left.
  int preprocess_end(const StateUse& use) const {
    const int begin = out_.line.graphs.at(module_.find_graph("main")).begin;
    return use.writes.empty() || use.writes.front().position > begin ? begin : 0;
  }

  // A state's memory holds one content from each assign to the last read before the next one.
  void add_state(const std::string& path, StateUse use) {
    std::sort(use.writes.begin(), use.writes.end(),
              [](const Write& a, const Write& b) { return a.position < b.position; });
    const int64_t addr = state_addr(path, use);
    std::vector<int> contents = {add_state_content(*any_op(use), {0, preprocess_end(use)})};
    const auto next_write = [&](size_t segment) {
      return segment < use.writes.size() ? use.writes[segment].position : out_.line.end + 1;
    };
    for (const Write& write : use.writes) {
      const ir::Value& value = *write.assign->operand(0);
      const bool is_there = addr_of(value) == addr;
      const Span copied{write.position, write.position};
      contents.push_back(is_there ? content_of(value)
                                  : add_state_content(*write.assign, copied));
      at(contents.back()).kind = Content::Kind::state;
      at(contents.back()).op = any_op(use);
      const int end = end_of_rounds(write.position, next_write(contents.size() - 1));
      extend(contents.back(), {write.position, end});
    }
    extend(contents.back(), {out_.line.end, out_.line.end});
    for (const Read& read : use.reads) {
      size_t segment = 0;
      while (next_write(segment) < read.entry) ++segment;
      const int content = content_of(*read.op->result());
      extend(content, {read.entry, end_of_rounds(read.entry, next_write(segment))});
      merge(content, contents[segment]);
    }
  }

  // One that has the state's role, if there is one.
  static const ir::Op* any_op(const StateUse& use) {
    for (const Read& read : use.reads) {
      if (read.op->attrs.has(ir::attr::role)) return read.op;
    }
    return use.reads.empty() ? use.writes.front().assign : use.reads.front().op;
  }

  static int64_t state_addr(const std::string& path, const StateUse& use) {
    const int64_t addr = any_op(use)->attrs.get_int(ir::attr::addr);
    const auto check = [&](const ir::Op& op) {
      INTERNAL_CHECK(addr == op.attrs.get_int(ir::attr::addr), "[plan] state \"", path, "\" is at ",
                     addr, ", `", op.text(), "` has it elsewhere");
    };
    for (const Read& read : use.reads) check(*read.op);
    for (const Write& write : use.writes) check(*write.assign);
    return addr;
  }

  int add_state_content(const ir::Op& op, const Span& span) {
    Content content;
    content.kind = Content::Kind::state;
    content.op = &op;
    const ir::Value* value = op.name == ir::op::state ? op.result() : op.operand(0);
    content.value = value;
    content.path = &op.attrs.get_string(ir::attr::path);
    content.addr = op.attrs.get_int(ir::attr::addr);
    content.bytes = value->type.bytes();
    content.span = span;
    return add(std::move(content));
  }

  void link_inplace(const ir::Op& op) {
    for (const auto& result : op.results) {
      const int index = inplace_operand(*result);
      if (index < 0) continue;
      const ir::Value* operand = op.operand(static_cast<size_t>(index));
      INTERNAL_CHECK(operand != nullptr && addr_of(*operand) == addr_of(*result), "[plan] `",
                     op.text(), "` is in place of operand ", index, ", which is elsewhere");
      check_only_reader(op, static_cast<size_t>(index));
      at(content_of(*operand)).taken_by = content_of(*result);
    }
  }

  // A kernel that works in place may write what it still reads by another operand.
  void check_only_reader(const ir::Op& op, size_t index) const {
    const int taken = content_of(*op.operand(index));
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (i == index || op.operands[i] == nullptr) continue;
      INTERNAL_CHECK(content_of(*op.operands[i]) != taken, "[plan] `", op.text(),
                     "` is in place of operand ", index, ", and reads the same memory as operand ",
                     i);
    }
  }

  const ir::Module& module_;
  Contents out_;
  std::vector<int> parent_;
  std::unordered_map<const ir::Value*, int> by_value_;
  std::map<std::string, StateUse> states_;
  std::map<std::string, int> constants_;
  std::vector<const ir::Op*> inplace_;
};

}  // namespace

std::string Content::name() const {
  if (value == nullptr) return concat("the scratch memory of `", op->text(), "`");
  if (path == nullptr) return "%" + value->name;
  return concat("state \"", *path, "\" (%", value->name, ")");
}

Contents find_contents(const ir::Module& module) { return Finder(module).take(); }

}  // namespace poptorch::plan
